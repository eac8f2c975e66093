/* SPDX-License-Identifier: Apache-2.0
 *
 * The script of the rung `fair`: any operation in any order, and what holds after each.
 */
#include "calls.h"
#include "fair_script.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define CLIENTS 4
#define STEPS 6000

static const char *const names[CLIENTS] = {"a", "b", "c", "d"};

struct walk {
    unsigned seed;
    long long tokens[CLIENTS]; /* the last that the client was told; perhaps an old one */
    long long newest;
    long long grants_expired;
    long long told; /* of them */
};

static int dice(struct walk *walk, int sides)
{
    return rand_r(&walk->seed) % sides;
}

/* Granted, and not claimed yet: the owner's number; -1: nobody's. */
static int owner_in(const char *state)
{
    if (strcmp(server_text(server, "HGET " LOCK " state"), state) != 0)
        return -1;
    const char *owner = server_text(server, "HGET " LOCK " owner");
    return owner[0] - 'a';
}

static void assert_sound(struct walk *walk, bool after_an_operation)
{
    char owner[8], seen[CLIENTS] = {0};
    snprintf(owner, sizeof owner, "%s", server_text(server, "HGET " LOCK " owner"));
    const redisReply *queue = server_ask(server, "LRANGE " QUEUE " 0 -1");
    for (size_t i = 0; i < queue->elements; i++) {
        assert_int_not_equal(queue->element[i]->str[0], owner[0]);
        assert_int_equal(seen[queue->element[i]->str[0] - 'a']++, 0);
    }
    if (after_an_operation && owner[0] == '\0')
        assert_int_equal(queue->elements, 0);
    assert_true(queue->elements == 0 || pttl(QUEUE) > 0);
    if (owner[0] == '\0')
        return;
    assert_between(pttl(LOCK), 1, TTL_MS);
    assert_int_equal(field_token(), atoll(server_text(server, "GET " NEWEST)));
    assert_true(field_token() >= walk->newest);
    walk->newest = field_token();
}

static void walk_acquire(struct walk *walk, int me)
{
    bool claims = owner_in("granted") == me;
    long long before = walk->newest;
    struct result got = acquire(names[me]);
    walk->told += got.expired;
    if (got.said == 0)
        return;
    assert_int_equal(owner_in("held"), me);
    assert_true(claims ? got.number == before : got.number > before);
    walk->tokens[me] = got.number;
}

static void walk_release(struct walk *walk, int me)
{
    bool has_it = owner_in("held") == me && field_token() == walk->tokens[me];
    bool more = dice(walk, 2) == 0;
    long long token = walk->tokens[me];
    struct call call = {.what = "release", .me = named(names[me]), .token = token, .more = more};
    if (dice(walk, 2) == 0)
        call.used = token + dice(walk, NUMBERS);
    long long queued = server_integer(server, "LLEN " QUEUE);
    bool again = owner_in("held") == me && /* as it was kept for more */
                 atoll(server_text(server, "HGET " LOCK " before")) == token && token != 0;
    struct result got = answered(&call, 3);
    walk->told += got.expired;
    if (again) {
        assert_result(got, 2, field_token(), 0);
        return;
    }
    assert_int_equal(got.said, !has_it ? 0 : more && queued == 0 ? 2 : 1);
    if (got.said == 0)
        return;
    long long least = call.used != 0 ? call.used : token + NUMBERS - 1;
    assert_true(!is_there(LOCK) || field_token() > least);
    walk->newest = is_there(LOCK) ? walk->newest : least;
    if (got.said == 2)
        walk->tokens[me] = got.number;
}

static void walk_leave(struct walk *walk, int me)
{
    bool granted = owner_in("granted") == me;
    char place[24];
    snprintf(place, sizeof place, "%s %d", names[me], GRANT_MS);
    long long try = dice(walk, 2) == 0 ? 0 : tries - dice(walk, 8);
    bool unheard_of =
        owner_in("held") == me && atoll(server_text(server, "HGET " LOCK " try")) <= try;
    long long token = field_token();
    struct result got = leave_after(names[me], try);
    walk->told += got.expired;
    assert_int_equal(got.said, granted || unheard_of);
    assert_true(owner_in("granted") != me);
    if (unheard_of && !is_there(LOCK))
        walk->newest = token + NUMBERS - 1;
    assert_int_equal(server_ask(server, "LPOS " QUEUE " %b", place, strlen(place))->type,
                     REDIS_REPLY_NIL);
}

static void walk_renew(struct walk *walk, int me)
{
    bool has_it = owner_in("held") == me && field_token() == walk->tokens[me];
    assert_int_equal(renew(names[me], walk->tokens[me]), has_it);
}

static void walk_expire(struct walk *walk)
{
    walk->grants_expired += owner_in("granted") >= 0;
    server_integer(server, "DEL " LOCK);
}

static void any_of_them_in_any_order(void **state)
{
    (void)state;
    const char *given = getenv("SEED");
    struct walk walk = {.seed = given != NULL ? (unsigned)atol(given) : (unsigned)time(NULL)};
    print_message("SEED=%u\n", walk.seed);
    for (int step = 0; step < STEPS; step++) {
        int me = dice(&walk, CLIENTS), what = dice(&walk, 100);
        if (what < 45)
            walk_acquire(&walk, me);
        else if (what < 75)
            walk_release(&walk, me);
        else if (what < 82)
            walk_leave(&walk, me);
        else if (what < 90)
            walk_renew(&walk, me);
        else if (what < 98)
            walk_expire(&walk);
        else
            server_integer(server, "DEL " QUEUE);
        assert_sound(&walk, what < 82);
    }
    if (!is_there(LOCK))
        walk.told += acquire("a").expired;
    assert_int_equal(walk.told, walk.grants_expired);
    assert_true(walk.grants_expired > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        test(any_of_them_in_any_order),
    };
    return cmocka_run_group_tests_name("fair_script_walk", tests, start_server, stop_server);
}
