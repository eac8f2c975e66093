/* SPDX-License-Identifier: Apache-2.0
 *
 * libdlock-etcd on a real etcd.
 */
#include "etcd_stage.h"
#include "server.h"

#include "alike.h"

/* ---- Sentences ------------------------------------------------------------------------------- */

static void what_is_wrong_is_said(void **state)
{
    (void)state;
    dlock_client *client;
    dlock *lock;
    dlock_hold *hold;
    const char *servers[] = {"http://h:2379", etcd_server_url(etcd)};
    struct dlock_options options = {
        .size = sizeof options, .engine = dlock_etcd(), .servers = servers, .server_count = 1};
    assert_status(dlock_client_open(&options, &client), INVALID);
    assert_says(dlock_error(), "servers[0] begins with neither etcd:// nor etcds://");
    options.server_count = 2;
    assert_status(dlock_client_open(&options, &client), INVALID);
    assert_says(dlock_error(), "2 servers; etcd has one URL");
    servers[0] = etcd_server_url(etcd);
    options.server_count = 1;
    options.ttl_ms = 999;
    assert_status(dlock_client_open(&options, &client), INVALID);
    assert_says(dlock_error(), "ttl_ms is 999; with etcd 1000 to 86400000 is right");

    client = client_here((struct dlock_options){.ttl_ms = 2000});
    assert_status(dlock_open(client, "watchdog", LOCK, &lock), INVALID);
    assert_string_equal(dlock_error(), "rung 'watchdog' is not one of etcd; there 'etcd' is right");
    lock = lock_at(client);
    struct dlock_want want = {.size = sizeof want, .ttl_ms = 60000};
    assert_status(dlock_acquire(lock, &want, &hold), INVALID);
    assert_says(dlock_error(), "want.ttl_ms is 60000, but all holds of a client live as long as "
                               "its lease, 2000 ms");
    want = (struct dlock_want){.size = sizeof want, .reads = dlock_batch_new()};
    assert_status(dlock_acquire(lock, &want, &hold), UNSUPPORTED);
    dlock_batch_free(want.reads);
    leave(client, lock);

    char nobody[48];
    snprintf(nobody, sizeof nobody, "etcd://127.0.0.1:%d", NOBODYS_PORT);
    client = client_at(nobody, (struct dlock_options){.connect_timeout_ms = 50});
    lock = lock_at(client);
    assert_status(tried(lock, &hold), UNREACHABLE);
    assert_says(dlock_error(), "etcd://127.0.0.1:1 could not be connected to: ");
    leave(client, lock);
}

/* ---- Leases ---------------------------------------------------------------------------------- */

/* An operator revokes the lease: its holder is told although its time is not over, and its waiters
 * go on with another one. */
static void its_lease_is_revoked(void **state)
{
    (void)state;
    struct record *record = record_new();
    struct started waiter = {0};
    dlock_client *client =
        client_here((struct dlock_options){.on_event = record_event, .on_event_arg = record});
    dlock *lock = lock_at(client);
    dlock_hold *hold = acquired(lock);
    uint64_t lease = etcd_lease(client);
    start(lock, waiting(60000), &waiter);
    eventually(places_at() == 2);
    revoke_lease(lease);
    eventually(record_count(record, "the lock no longer belongs to this owner") == 1);
    assert_false(dlock_valid(hold));
    assert_status(dlock_release(hold, NULL), LOST);
    started_answered(&waiter);
    assert_int_equal(waiter.status, DLOCK_OK);
    assert_true(etcd_lease(client) != lease);
    assert_status(dlock_release(waiter.hold, NULL), OK);
    leave(client, lock);
    record_free(record);
}

/* In whole seconds, rounded up; the granted one counts, and is the only one that may be wanted. */
static void its_time_is_rounded_up(void **state)
{
    (void)state;
    dlock_client *client = client_here((struct dlock_options){.ttl_ms = 50500});
    dlock *lock = lock_at(client);
    dlock_hold *hold = acquired(lock);
    assert_in_range(dlock_remaining_ms(hold), 50001, 51000);
    assert_status(dlock_release(hold, NULL), OK);
    hold = wanted(lock, (struct dlock_want){.ttl_ms = 50500});
    assert_status(dlock_release(hold, NULL), OK);
    hold = wanted(lock, (struct dlock_want){.ttl_ms = 51000});
    assert_status(dlock_release(hold, NULL), OK);
    struct dlock_want want = {.size = sizeof want, .ttl_ms = 50999};
    assert_status(dlock_acquire(lock, &want, &hold), INVALID);
    leave(client, lock);
}

/* The same owner has it again, with the token of its first hold. */
static void its_owner_again(void **state)
{
    (void)state;
    dlock_client *client = client_here((struct dlock_options){0});
    dlock *lock = lock_at(client);
    dlock_hold *none, *outer = acquired_by(lock, 7), *inner = acquired_by(lock, 7);
    assert_true(dlock_token(inner) == dlock_token(outer));
    assert_status(tried_by(lock, 8, &none), BUSY);
    assert_status(dlock_release(outer, NULL), OK);
    assert_status(tried_by(lock, 8, &none), BUSY);
    assert_true(dlock_valid(inner));
    assert_status(dlock_release(inner, NULL), OK);
    assert_true(is_free(lock));
    leave(client, lock);
}

/* The nested hold is given time after the one that it is nested in has ended. */
static void an_outer_hold_ends_first(void **state)
{
    (void)state;
    struct dlock_want brief = {.size = sizeof brief, .owner_id = 7, .hold_max_ms = 300};
    dlock_hold *outer, *none;
    dlock_client *client = client_here((struct dlock_options){.ttl_ms = 2000});
    dlock *lock = lock_at(client);
    assert_status(dlock_acquire(lock, &brief, &outer), OK);
    dlock_hold *inner = acquired_by(lock, 7);
    long_pause(2500);
    assert_false(dlock_valid(outer));
    assert_true(dlock_valid(inner));
    assert_status(tried_by(lock, 8, &none), BUSY);
    assert_status(dlock_release(inner, NULL), OK);
    assert_status(dlock_release(outer, NULL), LOST);
    leave(client, lock);
}

/* The server is frozen, and nobody says that the lease has ended: the client counts itself. */
static void its_server_hangs(void **state)
{
    (void)state;
    struct record *record = record_new();
    dlock_client *client = client_here(
        (struct dlock_options){.ttl_ms = 1000, .on_event = record_event, .on_event_arg = record});
    dlock *lock = lock_at(client);
    dlock_hold *hold = acquired(lock);
    etcd_server_pause(etcd);
    eventually(record_count(record, "LOST #1") == 1);
    assert_false(dlock_valid(hold));
    etcd_server_resume(etcd);
    assert_status(dlock_release(hold, NULL), LOST);
    hold = acquired(lock);
    assert_status(dlock_release(hold, NULL), OK);
    leave(client, lock);
    record_free(record);
}

/* The lease outlives the server's process, and so does the hold. */
static void its_server_restarts(void **state)
{
    (void)state;
    struct record *record = record_new();
    dlock_client *client =
        client_here((struct dlock_options){.on_event = record_event, .on_event_arg = record});
    dlock *lock = lock_at(client);
    dlock_hold *hold = acquired(lock);
    etcd_server_kill(etcd);
    eventually(record_count(record, "SERVER_GONE") == 1);
    etcd_server_restart(etcd);
    eventually(record_count(record, "SERVER_BACK") == 1);
    assert_true(dlock_valid(hold));
    assert_status(dlock_release(hold, NULL), OK);
    leave(client, lock);
    record_free(record);
}

/* It comes back empty: the hold is lost, and nobody can take the new identity for the old one. */
static void its_server_loses_its_data(void **state)
{
    (void)state;
    char before[96], after[96], others[96];
    dlock_client *client = client_here((struct dlock_options){0});
    dlock_client *other = client_here((struct dlock_options){0});
    dlock *lock = lock_at(client), *others_lock = lock_at(other);
    dlock_hold *hold = identified(lock, before);
    etcd_server_forget(etcd);
    assert_status(dlock_release(hold, NULL), LOST);
    hold = identified(lock, after);
    assert_status(dlock_release(hold, NULL), OK);
    hold = identified(others_lock, others);
    assert_status(dlock_release(hold, NULL), OK);
    assert_string_not_equal(before, after);
    assert_string_equal(others, after);
    leave(client, lock);
    leave(other, others_lock);
}

static void set_identity(const char *value)
{
    etcd_server_ask(etcd, "/v3/kv/put", "{\"key\":\"%s\",\"value\":\"%s\"}",
                    base64("/dlock/identity"), base64(value));
}

/* Its key is there already: it does not stay until the lease's time has passed twice. */
static void who_is_refused_leaves(void **state)
{
    (void)state;
    struct dlock_want want = {.size = sizeof want, .identity = true};
    dlock_hold *none;
    dlock_client *client = client_here((struct dlock_options){.ttl_ms = 10 * PATIENCE_MS});
    dlock *lock = lock_at(client);
    set_identity("");
    assert_status(dlock_acquire(lock, &want, &none), REFUSED);
    assert_says(dlock_error(), "is not one of this library");
    eventually(places_at() == 0);
    set_identity("0123");
    leave(client, lock);
}

/* ---- Keys that are gone ---------------------------------------------------------------------- */

/* Keys are deleted by hand: the holder's, and those of waiters, which take another place. */
static void keys_are_deleted(void **state)
{
    (void)state;
    struct record *record = record_new();
    struct started waiter = {0};
    dlock_client *client =
        client_here((struct dlock_options){.on_event = record_event, .on_event_arg = record});
    dlock *lock = lock_at(client);
    dlock_hold *hold = acquired(lock);
    start(lock, waiting(60000), &waiter);
    eventually(places_at() == 2);
    empty_queue();
    eventually(record_count(record, "the lock no longer belongs to this owner") == 1);
    started_answered(&waiter);
    assert_int_equal(waiter.status, DLOCK_OK);
    assert_status(dlock_release(hold, NULL), LOST);
    assert_true(dlock_valid(waiter.hold));
    assert_status(dlock_release(waiter.hold, NULL), OK);
    assert_true(is_free(lock));
    leave(client, lock);
    record_free(record);
}

/* The revisions that a watch would begin with are gone: it looks at the keys instead. */
static void revisions_are_compacted(void **state)
{
    (void)state;
    struct record *record = record_new();
    dlock_client *client =
        client_here((struct dlock_options){.on_event = record_event, .on_event_arg = record});
    dlock *lock = lock_at(client);
    dlock_hold *hold = acquired(lock); /* its watch begins a little later */
    etcd_server_ask(etcd, "/v3/kv/compaction", "{\"revision\":\"%llu\"}",
                    (unsigned long long)empty_queue());
    eventually(record_count(record, "the lock no longer belongs to this owner") == 1);
    assert_status(dlock_release(hold, NULL), LOST);
    leave(client, lock);
    record_free(record);
}

/* ---- Lost replies ---------------------------------------------------------------------------- */

/* The key that a lost reply told of is found again: there is no second one in the way. */
static void a_reply_is_lost(void **state)
{
    (void)state;
    struct proxy *proxy = proxy_start_to(etcd_server_port(etcd));
    dlock_client *client = client_behind(proxy, (struct dlock_options){0});
    dlock *lock = lock_at(client);
    proxy_plan(proxy, PROXY_CUT_REPLY, CREATE, NULL, 0);
    dlock_hold *hold = acquired(lock);
    assert_true(proxy_done(proxy));
    assert_int_equal(places_at(), 1);
    proxy_plan(proxy, PROXY_CUT_REPLY, DELETE, NULL, 0);
    assert_status(dlock_release(hold, NULL), OK);
    assert_true(proxy_done(proxy));
    assert_true(is_free(lock));
    leave(client, lock);
    proxy_free(proxy);
}

/* A create that was given up arrives when its lock was long released: it does nothing. */
static void a_create_is_late(void **state)
{
    (void)state;
    struct proxy *proxy = proxy_start_to(etcd_server_port(etcd));
    dlock_client *client = client_behind(proxy, (struct dlock_options){0});
    dlock *lock = lock_at(client);
    proxy_plan(proxy, PROXY_DELAY_REQUEST, CREATE, NULL, 0);
    dlock_hold *hold = acquired(lock);
    assert_true(proxy_done(proxy));
    assert_status(dlock_release(hold, NULL), OK);
    proxy_let_go_and_hear(proxy);
    assert_int_equal(places_at(), 0);
    leave(client, lock);
    proxy_free(proxy);
}

/* Late, it finds no key: while it was under way, nobody else's had its name. */
static void a_release_is_late(void **state)
{
    (void)state;
    struct proxy *proxy = proxy_start_to(etcd_server_port(etcd));
    dlock_client *client = client_behind(proxy, (struct dlock_options){0});
    dlock *lock = lock_at(client);
    dlock_hold *hold = acquired(lock);
    proxy_plan(proxy, PROXY_DELAY_REQUEST, DELETE, NULL, 0);
    assert_status(dlock_release(hold, NULL), OK);
    assert_true(proxy_done(proxy));
    hold = acquired(lock);
    proxy_let_go_and_hear(proxy);
    assert_int_equal(places_at(), 1);
    assert_status(dlock_release(hold, NULL), OK);
    leave(client, lock);
    proxy_free(proxy);
}

/* ---- Logins, and TLS ------------------------------------------------------------------------- */

/* The second call ends before the client asks the servers again. */
static void refused_with(const char *format, int port, const char *says)
{
    char url[128];
    dlock_hold *none;
    snprintf(url, sizeof url, format, port);
    dlock_client *client = client_at(url, (struct dlock_options){0});
    dlock *lock = lock_at(client);
    for (int call = 0; call < 2; call++) {
        struct dlock_want want = {.size = sizeof want, .call_max_ms = call == 0 ? 0 : 50};
        assert_status(dlock_acquire(lock, &want, &none), REFUSED);
        assert_says(dlock_error(), says);
        assert_null(strstr(dlock_error(), "wrong"));
        assert_null(strstr(dlock_error(), "connected"));
    }
    leave(client, lock);
}

/* A restarted server knows no tokens: the client logs in again. */
static void with_a_login(void **state)
{
    (void)state;
    char url[64];
    struct etcd_server *server = etcd_server_start(NULL);
    int port = etcd_server_port(server);
    allow(server);
    refused_with("etcd://127.0.0.1:%d", port, "user name is empty");
    refused_with("etcd://ann:wrong@127.0.0.1:%d", port, "authentication failed");
    refused_with("etcd://ann:p%%40ss@127.0.0.1:%d/elsewhere", port, "permission denied");
    snprintf(url, sizeof url, "etcd://ann:p%%40ss@127.0.0.1:%d", port);
    dlock_client *client = client_at(url, (struct dlock_options){0});
    dlock *lock = lock_at(client);
    dlock_hold *hold = acquired(lock);
    etcd_server_restart(server);
    assert_status(dlock_extend(hold), OK);
    assert_status(dlock_release(hold, NULL), OK);
    leave(client, lock);
    etcd_server_free(server);
}

static void with_tls(void **state)
{
    (void)state;
    char url[192];
    dlock_hold *hold;
    struct etcd_server *server = etcd_server_start((const char *[]){"--auto-tls", NULL});
    snprintf(url, sizeof url, "%s?ca=%s/data/fixtures/client/cert.pem", etcd_server_url(server),
             etcd_server_folder(server));
    dlock_client *client = client_at(url, (struct dlock_options){0});
    dlock *lock = lock_at(client);
    hold = acquired(lock);
    assert_status(dlock_release(hold, NULL), OK);
    leave(client, lock);
    client = client_at(etcd_server_url(server), (struct dlock_options){.connect_timeout_ms = 3000});
    lock = lock_at(client);
    assert_status(tried(lock, &hold), UNREACHABLE);
    assert_says(dlock_error(), "certificate");
    leave(client, lock);
    etcd_server_free(server);
}

/* One argument: only the tests whose name it matches. */
int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(under_the_oracle), /* it forks, so it comes first */
        cmocka_unit_test(its_holder_dies),  /* likewise */
        cmocka_unit_test(its_holder_is_frozen),
        cmocka_unit_test(started_calls),
        cmocka_unit_test(in_vain_and_cancelled),
        cmocka_unit_test(tokens_grow),
        cmocka_unit_test(what_is_wrong_is_said),
        cmocka_unit_test(its_lease_is_revoked),
        cmocka_unit_test(its_time_is_rounded_up),
        cmocka_unit_test(its_owner_again),
        cmocka_unit_test(an_outer_hold_ends_first),
        cmocka_unit_test(holds_are_given_time),
        cmocka_unit_test(its_server_hangs),
        cmocka_unit_test(its_server_restarts),
        cmocka_unit_test(its_server_loses_its_data),
        cmocka_unit_test(who_is_refused_leaves),
        cmocka_unit_test(nobody_releases),
        cmocka_unit_test(a_release_with_commands),
        cmocka_unit_test(it_is_broken),
        cmocka_unit_test(keys_are_deleted),
        cmocka_unit_test(revisions_are_compacted),
        cmocka_unit_test(a_reply_is_lost),
        cmocka_unit_test(a_create_is_late),
        cmocka_unit_test(a_release_is_late),
        cmocka_unit_test(with_a_login),
        cmocka_unit_test(with_tls),
    };
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests_name("etcd", tests, set_up, tear_down);
}
