/* SPDX-License-Identifier: Apache-2.0
 *
 * Workers share the connections to the stock's server: one that has none, and cannot have a new
 * one, waits for one that is returned. And what an error of a script says.
 */
#include "must.h"
#include "own_server.h"
#include "proxy.h"
#include "stock.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#define STOCK "inventory:{phone}"

static _Atomic int failures;

static void on_connection(void *arg, bool works)
{
    (void)arg;
    failures += !works;
}

struct reading {
    struct stock *stock;
    enum stock_status status;
    int64_t value;
};

static void *read_stock(void *arg)
{
    struct reading *reading = arg;
    reading->status = stock_read(reading->stock, STOCK, NULL, &reading->value);
    return NULL;
}

static void one_that_is_returned_is_used(void **state)
{
    (void)state;
    struct store_server *shop = store_server_new(&(struct store_options){
        .url = server_url(server), .timeout_ms = PATIENCE_MS, .on_connection = on_connection});
    struct stock *first = stock_new_shared(shop);
    struct reading second = {.stock = stock_new_shared(shop)};
    pthread_t thread;
    server_text(server, "SET " STOCK " 5");
    assert_int_equal(stock_connect(first), STOCK_OK);
    server_text(server, "CONFIG SET maxclients 1"); /* no more than there are */
    must(pthread_create(&thread, NULL, read_stock, &second) == 0);
    eventually(failures > 0);
    stock_rest(first);
    must(pthread_join(thread, NULL) == 0);
    assert_int_equal(second.status, STOCK_OK);
    assert_int_equal(second.value, 5);
    server_text(server, "CONFIG SET maxclients 1000");
    stock_free(first);
    stock_free(second.stock);
    store_server_free(shop);
}

/* As Redis up to 6.2 words the error of a command in a script. */
static void a_wrapped_error(void **state)
{
    (void)state;
    static const char answer[] = "-ERR Error running script (call to f_a1b2): @user_script:7: "
                                 "WRONGTYPE Operation against a key\r\n";
    struct proxy *proxy = proxy_start(server);
    struct store_server *shop = store_server_new(
        &(struct store_options){.url = proxy_url(proxy), .timeout_ms = PATIENCE_MS});
    struct stock *stock = stock_new(shop);
    const struct stock_fence fence = {.kind = FENCE_LAST_WRITE, .key = "mark", .token = 1};
    int64_t left;
    server_integer(server, "LPUSH mark x");
    proxy_plan(proxy, PROXY_REPLACE_REPLY, "EVAL", answer, strlen(answer));
    assert_int_equal(stock_decrement(stock, STOCK, 1, &fence, &left), STOCK_INVALID);
    assert_non_null(strstr(stock_error(stock), "mark is a list, where a string is needed"));
    stock_free(stock);
    store_server_free(shop);
    proxy_free(proxy);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(one_that_is_returned_is_used),
                                       cmocka_unit_test(a_wrapped_error)};
    return cmocka_run_group_tests_name("stock_shared", tests, start_server, stop_server);
}
