/* SPDX-License-Identifier: Apache-2.0
 *
 * dlock_identity: which server a token comes from. (The rungs' own acquires by slots: test_token.)
 */
#include "calls.h"
#include "must.h"
#include "own_server.h"

#include <stdlib.h>

#define LOCK "lock:{phone}"
#define KEY "dlock:identity"

static const struct dlock_want wants = {.identity = true};

/* The identity by one more acquisition, for the caller to free. */
static char *identity_by(dlock *lock)
{
    dlock_hold *hold = wanted(lock, wants);
    char *identity = strdup(dlock_identity(hold));
    assert_status(dlock_release(hold, NULL), OK);
    return identity;
}

static void is_one_for_all(void **state)
{
    (void)state;
    size_t count;
    const struct dlock_rung *rungs = single_rungs(&count);
    for (size_t i = 0; i < count; i++) {
        if (!rungs[i].tokens)
            continue;
        dlock_client *clients[2] = {new_client(), new_client()};
        dlock *locks[2] = {lock_of(clients[0], rungs[i].name, LOCK),
                           lock_of(clients[1], rungs[i].name, "lock:{pen}")};
        char *first = identity_by(locks[0]), *other = identity_by(locks[1]);
        assert_string_not_equal(first, "");
        assert_string_equal(first, other);
        assert_string_equal(server_text(server, "GET " KEY), first);
        assert_int_equal(server_integer(server, "PTTL " KEY), -1);
        /* the same client makes it again: another value */
        server_text(server, "FLUSHALL");
        char *next = identity_by(locks[0]);
        assert_string_not_equal(next, "");
        assert_string_not_equal(next, first);
        free(first);
        free(other);
        free(next);
        for (int j = 0; j < 2; j++) {
            dlock_close(locks[j]);
            dlock_client_close(clients[j]);
        }
        server_text(server, "FLUSHALL");
    }
}

static void costs_a_command_and_only_if_it_is_wanted(void **state)
{
    (void)state;
    dlock_client *client = new_client();
    dlock *lock = lock_of(client, "notify", LOCK);
    dlock_hold *hold = acquired(lock);
    assert_string_equal(dlock_identity(hold), "");
    assert_status(dlock_release(hold, NULL), OK);
    struct dlock_stats before = {.size = sizeof before}, plain = before, more = before;
    dlock_client_stats(client, &before);
    assert_status(dlock_release(acquired(lock), NULL), OK);
    dlock_client_stats(client, &plain);
    assert_status(dlock_release(wanted(lock, wants), NULL), OK);
    dlock_client_stats(client, &more);
    assert_int_equal(more.commands - plain.commands, plain.commands - before.commands + 1);
    dlock_close(lock);

    lock = lock_of(client, "watchdog", "lock:{pen}"); /* it gives no tokens */
    hold = wanted(lock, wants);
    assert_string_equal(dlock_identity(hold), "");
    assert_status(dlock_release(hold, NULL), OK);
    assert_string_equal(dlock_identity(NULL), "");
    dlock_close(lock);
    dlock_client_close(client);
}

static void rides_beside_the_callers_reads(void **state)
{
    (void)state;
    dlock_client *client = new_client();
    dlock *lock = lock_of(client, "fair", LOCK);
    dlock_batch *reads = dlock_batch_new();
    struct dlock_reply reply = {.size = sizeof reply};
    assert_status(dlock_batch_add(reads, 2, (const char *const[]){"ECHO", "mine"}, NULL), OK);
    for (int i = 0; i < 2; i++) { /* the script is sent in full, and then by its SHA1 */
        dlock_hold *hold = wanted(lock, (struct dlock_want){.identity = true, .reads = reads});
        assert_status(dlock_batch_reply(reads, 0, &reply), OK);
        assert_string_equal(reply.text, "mine");
        assert_string_equal(dlock_identity(hold), server_text(server, "GET " KEY));
        assert_status(dlock_release(hold, NULL), OK);
    }
    dlock_batch_free(reads);
    dlock_close(lock);
    dlock_client_close(client);
}

/* A nested hold of `fair` asks no server: it has its grant's identity. */
static void belongs_to_the_grant(void **state)
{
    (void)state;
    dlock_client *client = new_client();
    dlock *lock = lock_of(client, "fair", LOCK);
    const struct dlock_want mine = {.identity = true, .owner_id = 7};
    dlock_hold *outer = wanted(lock, mine);
    server_text(server, "SET " KEY " another");
    dlock_hold *inner = wanted(lock, mine);
    assert_string_equal(dlock_identity(inner), dlock_identity(outer));
    assert_string_not_equal(dlock_identity(inner), "another");
    assert_true(dlock_handed_off(inner));
    assert_false(dlock_handed_off(outer));
    dlock_hold *without = wanted(lock, (struct dlock_want){.owner_id = 7});
    assert_string_equal(dlock_identity(without), "");
    assert_status(dlock_release(without, NULL), OK);
    assert_status(dlock_release(inner, NULL), OK);
    assert_status(dlock_release(outer, NULL), OK);
    dlock_hold *next = wanted(lock, mine);
    assert_string_equal(dlock_identity(next), "another");
    assert_false(dlock_handed_off(next));
    assert_status(dlock_release(next, NULL), OK);
    dlock_close(lock);
    dlock_client_close(client);
}

static void is_unknown_if_the_server_does_not_tell_it(void **state)
{
    (void)state;
    dlock_client *client = new_client();
    dlock *lock = lock_of(client, "read_write", LOCK);
    server_text(server, "SET " KEY " %0100d", 7); /* longer than any that the library makes */
    char *identity = identity_by(lock);
    assert_string_equal(identity, "");
    free(identity);
    dlock_close(lock);
    dlock_client_close(client);
}

/* The grant is given back, and the sentence names the key. */
static void of_another_type_is_refused(void **state)
{
    (void)state;
    size_t count;
    const struct dlock_rung *rungs = single_rungs(&count);
    for (size_t i = 0; i < count; i++) {
        if (!rungs[i].tokens)
            continue;
        /* one that was left would last beyond the test */
        dlock_client *client =
            client_of(server_url(server), (struct dlock_options){.ttl_ms = 3600000});
        dlock *lock = lock_of(client, rungs[i].name, LOCK);
        const struct dlock_want want = {.size = sizeof want, .identity = true};
        dlock_hold *hold;
        server_integer(server, "LPUSH " KEY " x");
        assert_status(dlock_acquire(lock, &want, &hold), WRONG_TYPE);
        assert_null(hold);
        assert_non_null(strstr(dlock_error(), KEY " holds no string"));
        server_integer(server, "DEL " KEY);
        char *identity = identity_by(lock);
        assert_string_not_equal(identity, "");
        free(identity);
        dlock_close(lock);
        dlock_client_close(client);
        server_text(server, "FLUSHALL");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(is_one_for_all, empty_server),
        cmocka_unit_test_setup(costs_a_command_and_only_if_it_is_wanted, empty_server),
        cmocka_unit_test_setup(rides_beside_the_callers_reads, empty_server),
        cmocka_unit_test_setup(belongs_to_the_grant, empty_server),
        cmocka_unit_test_setup(is_unknown_if_the_server_does_not_tell_it, empty_server),
        cmocka_unit_test_setup(of_another_type_is_refused, empty_server),
    };
    return cmocka_run_group_tests_name("identity", tests, start_server, stop_server);
}
