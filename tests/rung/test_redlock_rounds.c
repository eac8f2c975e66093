/* SPDX-License-Identifier: Apache-2.0
 *
 * `redlock`: rounds of renewals that do not wait for each other, for a slow server, or for what
 * sets a key again.
 */
#include "redlock_stage.h"

struct extender {
    dlock_hold *hold;
    dlock_status status;
    atomic_bool over;
    pthread_t thread;
};

static void *extend(void *arg)
{
    struct extender *extender = arg;
    extender->status = dlock_extend(extender->hold);
    extender->over = true;
    return NULL;
}

static void extender_start(struct extender *extender)
{
    extender->thread = thread_start(extend, extender);
}

static dlock_status extender_end(struct extender *extender)
{
    thread_wait(extender->thread);
    return extender->status;
}

/* Whether the timekeeper will renew the hold. */
static bool has_turn(dlock_hold *hold)
{
    struct timekeeper *timekeeper = &hold->lock->client->timekeeper;
    pthread_mutex_lock(&timekeeper->mutex);
    bool has = hold->turn.in == &timekeeper->waiting || hold->turn.in == &timekeeper->due;
    pthread_mutex_unlock(&timekeeper->mutex);
    return has;
}

/* ---- One round of a hold at a time ----------------------------------------------------------- */

static void hold_renewals_at(size_t first, size_t count)
{
    for (size_t i = first; i < first + count; i++)
        proxy_plan(proxies[i], PROXY_HOLD_REQUEST, "PEXPIRE", NULL, 0);
}

static void let_go(size_t first, size_t count)
{
    for (size_t i = first; i < first + count; i++)
        proxy_let_go(proxies[i]);
}

/* As long as dlock_extend renews a hold, the timekeeper does not, and comes back to it. */
static void an_extended_hold_is_not_renewed_meanwhile(void **state)
{
    (void)state;
    dlock_client *client = client_behind_proxies(3, (struct dlock_options){0});
    dlock *lock = connected(client);
    dlock_hold *hold = acquired(lock);
    counted_by(hold, 3);
    assert_true(has_turn(hold));
    hold_renewals_at(1, 2);
    struct extender extender = {.hold = hold};
    extender_start(&extender);
    eventually(proxy_done(proxies[1]) && proxy_done(proxies[2]));
    assert_false(has_turn(hold));
    let_go(1, 2);
    assert_status(extender_end(&extender), OK);
    assert_true(has_turn(hold));
    assert_status(dlock_release(hold, NULL), OK);
    end_behind_proxies(client, lock);
    flush_all();
}

/* Two calls that extend a hold take turns. */
static void a_hold_is_extended_once_at_a_time(void **state)
{
    (void)state;
    dlock_client *client = client_behind_proxies(3, (struct dlock_options){0});
    dlock *lock = connected(client);
    dlock_hold *hold = acquired(lock);
    counted_by(hold, 3);
    hold_renewals_at(1, 2);
    struct extender first = {.hold = hold}, second = {.hold = hold};
    size_t before = proxy_requests(proxies[0], "PEXPIRE");
    extender_start(&first);
    eventually(proxy_done(proxies[1]) && proxy_done(proxies[2]));
    extender_start(&second);
    long_pause(200);
    assert_int_equal(proxy_requests(proxies[0], "PEXPIRE"), before + 1);
    let_go(1, 2);
    assert_status(extender_end(&first), OK);
    assert_status(extender_end(&second), OK);
    assert_int_equal(proxy_requests(proxies[0], "PEXPIRE"), before + 2);
    assert_status(dlock_release(hold, NULL), OK);
    end_behind_proxies(client, lock);
    flush_all();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_extended_hold_is_not_renewed_meanwhile),
        cmocka_unit_test(a_hold_is_extended_once_at_a_time),
    };
    return cmocka_run_group_tests_name("redlock_rounds", tests, servers_start, servers_stop);
}
