/* SPDX-License-Identifier: Apache-2.0
 *
 * Sales without workers: this one thread drives a crowd of them, as an event loop would. Each waits
 * for its lock and for its business time without keeping the thread. Two things are asked of that:
 * every step was taken here, and most of the crowd was suspended at once.
 */
#include "../../lock/clock.h"
#include "lock_owner.h"
#include "must.h"
#include "outage.h"
#include "own_server.h"
#include "request.h"
#include "sale.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>

#define CROWD 40
#define STOCK 25
#define ITEMS 4
#define WORK_MS 100 /* a busy machine may be away for some of it */

/* ---- The loop -------------------------------------------------------------------------------- */

/* All that is to go on: `at_ns` is 0 where it shall at once. */
static struct my_loop {
    pthread_mutex_t mutex; /* protects `at_ns` */
    int fd;                /* something can go on */
    struct sale sales[CROWD];
    char ids[CROWD][16];
    int64_t at_ns[CROWD]; /* INT64_MAX: not known */
} my_loop = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static void go_on_at(const struct sale *sale, int64_t at_ns)
{
    uint64_t one = 1;
    pthread_mutex_lock(&my_loop.mutex);
    my_loop.at_ns[sale - my_loop.sales] = at_ns;
    pthread_mutex_unlock(&my_loop.mutex);
    if (write(my_loop.fd, &one, sizeof one) != sizeof one)
        abort();
}

static void resume(struct sale *sale)
{
    go_on_at(sale, 0);
}

static void resume_at(struct sale *sale, int64_t at_ns)
{
    go_on_at(sale, at_ns);
}

static void resume_after_switch(struct sale *sale)
{
    (void)sale;
    abort(); /* nobody switches */
}

static bool is_client_closed(const struct sale *sale)
{
    (void)sale;
    return false;
}

static const struct sale_driver driver = {resume, resume_at, resume_after_switch, is_client_closed};

/* One that can go on, taken off; NULL: none can, and *left_ms says for how long, -1 if that is not
 * known. */
static struct sale *next_sale(int *left_ms)
{
    struct sale *found = NULL;
    int64_t first_ns = INT64_MAX, now_ns = mono_ns();
    pthread_mutex_lock(&my_loop.mutex);
    for (size_t i = 0; i < CROWD && found == NULL; i++) {
        first_ns = min_ns(first_ns, my_loop.at_ns[i]);
        if (my_loop.at_ns[i] > now_ns)
            continue;
        my_loop.at_ns[i] = INT64_MAX;
        found = &my_loop.sales[i];
    }
    pthread_mutex_unlock(&my_loop.mutex);
    *left_ms = first_ns == INT64_MAX ? -1 : (int)((first_ns - now_ns) / NS_PER_MS + 1);
    return found;
}

/* How many are at their business now. */
static int count_working(void)
{
    int working = 0;
    for (size_t i = 0; i < CROWD; i++)
        working += my_loop.sales[i].step == STEP_DECIDE;
    return working;
}

/* Until all are over. The most that were suspended, and that were at their business, at once. */
static int drive_loop(struct sale_worker *worker, int *working_most)
{
    int over = 0, begun = 0, suspended_most = 0;
    *working_most = 0;
    bool is_begun[CROWD] = {false};
    while (over < CROWD) {
        int left_ms;
        struct sale *sale = next_sale(&left_ms);
        if (sale == NULL) {
            struct pollfd ready = {.fd = my_loop.fd, .events = POLLIN};
            uint64_t count;
            if (poll(&ready, 1, left_ms) == 1)
                assert_int_equal(read(my_loop.fd, &count, sizeof count), sizeof count);
            continue;
        }
        begun += !is_begun[sale - my_loop.sales];
        is_begun[sale - my_loop.sales] = true;
        if (sale_go_on(worker, sale) == SALE_OVER)
            over++;
        if (begun - over > suspended_most)
            suspended_most = begun - over;
        if (count_working() > *working_most)
            *working_most = count_working();
    }
    return suspended_most;
}

/* ---- What sales need ------------------------------------------------------------------------- */

static const int codes[SALE_RESULT_COUNT];

/* As `inventoryd --lock RUNG --write WRITE` would have it. */
static struct config configure(const char *rung, const char *write)
{
    struct config config;
    struct settings_request request;
    char error[SETTINGS_ERROR_MAX], work_ms[16];
    snprintf(work_ms, sizeof work_ms, "%d", WORK_MS);
    char *argv[] = {"test",
                    "--lock",
                    (char *)(uintptr_t)rung,
                    "--write",
                    (char *)(uintptr_t)write,
                    "--work-ms",
                    work_ms,
                    "--wait-ms",
                    "60000",
                    "--redis",
                    (char *)(uintptr_t)server_url(server),
                    NULL};
    if (!config_read(&config, &request, 11, argv, error))
        failed("%s", error);
    return config;
}

static void start_sales(const struct sale_env *env)
{
    for (int i = 0; i < CROWD; i++) {
        struct sale *sale = &my_loop.sales[i];
        snprintf(my_loop.ids[i], sizeof my_loop.ids[i], "r%d", i);
        *sale = (struct sale){.purpose = SALE_SELL,
                              .request = my_loop.ids[i],
                              .quantity = 1,
                              .driver = &driver,
                              .arrived_ns = mono_ns()};
        snprintf(sale->item, sizeof sale->item, "i%d", i % ITEMS);
        sale_arrive(env, sale);
        my_loop.at_ns[i] = 0;
    }
}

/* ---- The test -------------------------------------------------------------------------------- */

/* What sales need, for one rung and write mode. */
static struct stage {
    struct config config;
    struct setting setting;
    struct mode mode;
    struct lock_owner_pool owners;
    struct epochs epochs;
    atomic_long waiting;
    struct lock_servers locks[LOCK_ROLES];
    struct sale_env env;
} stage;

/* stock_url NULL: the test's server. */
static struct sale_worker *set_stage(const char *rung, const char *write, const char *stock_url,
                                     int64_t stock_timeout_ms)
{
    struct sale_env *env = &stage.env;
    stage.config = configure(rung, write);
    stage.setting = (struct setting){.rung = stage.config.lock, .write = stage.config.write};
    stage.waiting = 0;
    memset(stage.locks, 0, sizeof stage.locks);
    stage.env = (struct sale_env){.config = &stage.config,
                                  .locks = {&stage.locks[ROLE_LOCK]},
                                  .mode = &stage.mode,
                                  .codes = codes,
                                  .lock_owner_pool = &stage.owners,
                                  .epochs = &stage.epochs,
                                  .waiting = &stage.waiting};
    mode_init(&stage.mode, &stage.setting);
    lock_owner_pool_init(&stage.owners);
    epochs_init(&stage.epochs, (const char *const[LOCK_ROLES]){"here"});
    env->stock_server = store_server_new(
        &(struct store_options){.url = stock_url != NULL ? stock_url : stage.config.stock_redis,
                                .timeout_ms = stock_timeout_ms});
    stage.locks[ROLE_LOCK] =
        (struct lock_servers){.role = ROLE_LOCK, .count = 1, .servers = {env->stock_server}};
    env->outage = outage_new(&(struct outage_options){.fail_fast_ms = PATIENCE_MS,
                                                      .redis_timeout_ms = PATIENCE_MS,
                                                      .locks = stage.locks,
                                                      .stock_server = env->stock_server,
                                                      .lock_key = "lock:{readyz}",
                                                      .stock_key = "inventory:{readyz}"});
    assert_int_equal(
        dlock_client_open(
            &(struct dlock_options){.size = sizeof(struct dlock_options),
                                    .servers = (const char *[]){stage.config.lock_redis},
                                    .server_count = 1,
                                    .connect_timeout_ms = PATIENCE_MS,
                                    .command_timeout_ms = PATIENCE_MS,
                                    .allow_flawed = true},
            &stage.locks[ROLE_LOCK].client),
        DLOCK_OK);
    my_loop.fd = eventfd(0, EFD_CLOEXEC);
    return sale_worker_new(env, stock_new_shared(env->stock_server));
}

static void clear_stage(struct sale_worker *worker)
{
    close(my_loop.fd);
    sale_worker_free(worker);
    lock_owner_pool_free(&stage.owners);
    dlock_client_close(stage.locks[ROLE_LOCK].client);
    outage_free(stage.env.outage);
    store_server_free(stage.env.stock_server);
    epochs_destroy(&stage.epochs);
    mode_destroy(&stage.mode);
    config_free(&stage.config);
}

static void one_thread_drives_a_crowd(const char *rung, const char *write)
{
    struct sale_worker *worker = set_stage(rung, write, NULL, PATIENCE_MS);
    assert_true(outage_start(stage.env.outage));
    for (int i = 0; i < ITEMS; i++)
        server_text(server, "SET inventory:{i%d} %d", i, STOCK / ITEMS);

    start_sales(&stage.env);
    int sold = 0, working_most;
    int suspended_most = drive_loop(worker, &working_most);

    for (int i = 0; i < CROWD; i++) {
        sold += my_loop.sales[i].result == SALE_SOLD;
        assert_true(my_loop.sales[i].result == SALE_SOLD ||
                    my_loop.sales[i].result == SALE_SOLD_OUT);
    }
    assert_int_equal(sold, STOCK / ITEMS * ITEMS);
    for (int i = 0; i < ITEMS; i++)
        assert_string_equal(server_text(server, "GET inventory:{i%d}", i), "0");
    assert_int_equal(suspended_most, CROWD);
    assert_true(working_most > 1);
    clear_stage(worker);
}

/* How many connections have come since the last call. */
static int accepted(int listener)
{
    int count = 0;
    for (int fd; (fd = accept(listener, NULL, NULL)) >= 0; count++)
        close(fd);
    return count;
}

/* The stock's server accepts, and says nothing. Once the waits have ended, a sale that waits for it
 * connects no more. */
static void a_drain_ends_the_wait_for_the_stock(void **state)
{
    (void)state;
    char url[64];
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof at;
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    must(bind(listener, (struct sockaddr *)&at, size) == 0 && listen(listener, 64) == 0);
    must(getsockname(listener, (struct sockaddr *)&at, &size) == 0);
    snprintf(url, sizeof url, "redis://127.0.0.1:%d", ntohs(at.sin_port));
    struct sale_worker *worker = set_stage("local", "decr", url, 200);
    struct sale *sale = &my_loop.sales[0];
    start_sales(&stage.env);
    assert_int_equal(sale_go_on(worker, sale), SALE_WAITING);
    sale_worker_rest(worker);
    eventually(accepted(listener) > 0); /* it was tried */
    long_pause(1000);                   /* longer than the pause between two attempts */
    accepted(listener);
    outage_end_waits(stage.env.outage);
    assert_int_equal(sale_go_on(worker, sale), SALE_OVER);
    assert_int_equal(sale->result, SALE_DRAINING);
    assert_int_equal(accepted(listener), 0);
    for (int i = 1; i < CROWD; i++)
        sale_refuse(&stage.env, &my_loop.sales[i], SALE_DRAINING, "");
    clear_stage(worker);
    close(listener);
}

#define CASE(rung, write)                                                                          \
    static void rung##_##write(void **state)                                                       \
    {                                                                                              \
        (void)state;                                                                               \
        one_thread_drives_a_crowd(#rung, #write);                                                  \
    }
CASE(local, decr)
CASE(owner_lua, set)
CASE(watchdog, atomic)
CASE(notify, set)
CASE(fair, fenced)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(local_decr),      cmocka_unit_test(owner_lua_set),
        cmocka_unit_test(watchdog_atomic), cmocka_unit_test(notify_set),
        cmocka_unit_test(fair_fenced),     cmocka_unit_test(a_drain_ends_the_wait_for_the_stock),
    };
    return cmocka_run_group_tests_name("sale_loop", tests, start_server, stop_server);
}
