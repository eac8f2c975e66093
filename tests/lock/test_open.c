/* SPDX-License-Identifier: Apache-2.0
 *
 * Clients and locks that are opened: the ladder's table, names, and that no server is asked.
 */
#include "calls.h"
#include "status.h"

#include <ctype.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

/* ---- Clients --------------------------------------------------------------------------------- */

/* Opens, and asks no server whether it is there. */
static void nothing_is_contacted(void **state)
{
    (void)state;
    dlock_client *client = client_of("redis://127.0.0.1:1", (struct dlock_options){0});
    dlock *lock = lock_of(client, NULL, "lock:a");
    assert_int_equal(stats_of(client).connects, 0);
    assert_int_equal(stats_of(client).commands, 0);
    dlock_close(lock);
    dlock_client_close(client);
}

/* ---- The ladder ------------------------------------------------------------------------------ */

#define FIRST_OF_ANOTHER_ENGINE 19

static void the_ladder(void **state)
{
    static const struct {
        const char *name;
        bool flawed, expires, renewed, reentrant;
    } expected[] = {
        {"none", true, false, false, false},
        {"local", true, false, false, false},
        {"setnx", true, false, false, false},
        {"setnx_expire", true, true, false, false},
        {"setnx_multi", true, true, false, false},
        {"set_nx_ex", true, true, false, false},
        {"owner_check", true, true, false, false},
        {"owner_lua", false, true, false, false},
        {"reentrant_tls", true, true, false, true},
        {"reentrant_getset", true, true, false, true},
        {"reentrant", false, true, false, true},
        {"watchdog_timer", true, true, false, true}, /* `renewed`: by the timekeeper, which tells */
        {"watchdog", false, true, true, true},
        {"blpop_wake", true, true, true, true},
        {"notify", false, true, true, true},
        {"fair", false, true, true, true},
        {"rw_counter", true, false, false, false},
        {"read_write", false, true, true, true},
        {"redlock", false, true, true, false},
        {"zookeeper", false, true, true, true},
        {"etcd", false, true, true, true},
    };
    (void)state;
    size_t count;
    const struct dlock_rung *rungs = dlock_rungs(&count);
    assert_int_equal(count, sizeof expected / sizeof expected[0]);
    for (size_t i = 0; i < count; i++) {
        assert_string_equal(rungs[i].name, expected[i].name);
        assert_int_equal(rungs[i].flawed, expected[i].flawed);
        assert_int_equal(rungs[i].expires, expected[i].expires);
        assert_int_equal(rungs[i].renewed, expected[i].renewed);
        assert_int_equal(rungs[i].reentrant, expected[i].reentrant);
        assert_int_equal(rungs[i].quorum, strcmp(rungs[i].name, "redlock") == 0);
        assert_true(strlen(rungs[i].adds) > 0 && strlen(rungs[i].flaw) > 0);
        assert_string_equal(rungs[i].engine, i < 2                         ? "none"
                                             : i < FIRST_OF_ANOTHER_ENGINE ? "redis"
                                                                           : rungs[i].name);
        assert_int_equal(rungs[i].distributed, i >= 2);
        assert_true(rungs[i].tokens || i < FIRST_OF_ANOTHER_ENGINE);
        assert_ptr_equal(dlock_rung_find(rungs[i].name), &rungs[i]);
    }
    assert_string_equal(dlock_rung_find(NULL)->name, "watchdog");
    assert_null(dlock_rung_find(""));
    assert_null(dlock_rung_find("Watchdog"));
}

static void no_such_rung_lists_those_there_are(void **state)
{
    (void)state;
    dlock_client *client = client_of("redis://127.0.0.1:1", (struct dlock_options){0});
    dlock *lock = (dlock *)&lock;
    size_t count;
    const struct dlock_rung *rungs = dlock_rungs(&count);
    assert_status(dlock_open(client, "redlocks", "lock:a", &lock), INVALID);
    assert_null(lock);
    assert_says(dlock_error(), "there is no rung 'redlocks'; there are owner_lua, reentrant, ");
    const char *teaching = strstr(dlock_error(), " and, flawed, kept for teaching: none, local, ");
    assert_non_null(teaching);
    for (size_t i = 0; i < count; i++) {
        char name[64], list[SENTENCE_MAX];
        snprintf(name, sizeof name, " %s,", rungs[i].name);
        snprintf(list, sizeof list, "%.*s,", (int)(teaching - dlock_error()), dlock_error());
        if (rungs[i].flawed)
            snprintf(list, sizeof list, "%s,", teaching);
        assert_says(list, name);
    }
    dlock_client_close(client);
}

static void a_rung_of_another_engine_needs_it(void **state)
{
    (void)state;
    dlock_client *client = client_of("redis://127.0.0.1:1", (struct dlock_options){0});
    dlock *lock = (dlock *)&lock;
    assert_status(dlock_open(client, "zookeeper", "lock:a", &lock), INVALID);
    assert_null(lock);
    assert_string_equal(dlock_error(),
                        "rung 'zookeeper' is of the package libdlock-zookeeper; open a client "
                        "whose options.engine is dlock_zookeeper()");
    dlock_client_close(client);
}

static void flawed_rungs_must_be_asked_for(void **state)
{
    (void)state;
    dlock_client *client;
    assert_status(dlock_client_open(NULL, &client), OK);
    size_t count;
    const struct dlock_rung *rungs = dlock_rungs(&count);
    for (size_t i = 0; i < count; i++) {
        dlock *lock;
        dlock_status status = dlock_open(client, rungs[i].name, "lock:a", &lock);
        assert_int_equal(status, rungs[i].flawed                              ? DLOCK_FLAWED
                                 : rungs[i].quorum || !is_of_redis(&rungs[i]) ? DLOCK_INVALID
                                                                              : DLOCK_OK);
        if (status == DLOCK_FLAWED) {
            assert_null(lock);
            assert_says(dlock_error(), rungs[i].flaw);
            assert_says(dlock_error(), "allow_flawed");
        }
        dlock_close(lock);
    }
    dlock_client_close(client);
}

static void names_have_1_to_512_bytes(void **state)
{
    (void)state;
    dlock_client *client = client_of("redis://127.0.0.1:1", (struct dlock_options){0});
    char name[DLOCK_NAME_MAX + 2];
    dlock *lock;
    assert_int_equal(DLOCK_NAME_MAX, 512);
    memset(name, 'n', sizeof name);
    name[513] = '\0';
    assert_status(dlock_open(client, NULL, name, &lock), INVALID);
    assert_says(dlock_error(), "1 to 512 bytes; this one has 513");
    assert_status(dlock_open(client, NULL, "", &lock), INVALID);
    assert_says(dlock_error(), "1 to 512 bytes; this one has 0");
    assert_status(dlock_open(client, NULL, NULL, &lock), INVALID);
    assert_says(dlock_error(), "dlock_open(): name is NULL");
    assert_null(lock);
    name[512] = '\0';
    assert_status(dlock_open(client, NULL, name, &lock), OK);
    assert_string_equal(dlock_name(lock), name);
    assert_string_equal(dlock_rung_of(lock)->name, "watchdog");
    dlock_close(lock);
    dlock_close(NULL);
    memset(name, '{', 512); /* a name this long leaves room for what is wrong with it */
    assert_status(dlock_open(client, "fair", name, &lock), INVALID);
    assert_says(dlock_error(), "'{{{{{{{{");
    assert_says(dlock_error(), "...{{{{");
    assert_says(dlock_error(), "{' has a brace but no hash tag");
    assert_says(dlock_error(), "or no brace");
    dlock_client_close(client);
}

static void a_rung_works_with_one_server_or_with_several(void **state)
{
    (void)state;
    const char *const urls[] = {"redis://127.0.0.1:1", "redis://127.0.0.1:2", "redis://127.0.0.1:3",
                                "redis://127.0.0.1:4", "redis://127.0.0.1:5"};
    size_t count;
    const struct dlock_rung *rungs = dlock_rungs(&count);
    for (size_t servers = 1; servers <= 5; servers++) {
        char part[160];
        dlock_client *client;
        assert_status(
            dlock_client_open(&(struct dlock_options){.size = sizeof(struct dlock_options),
                                                      .servers = urls,
                                                      .server_count = servers,
                                                      .allow_flawed = true},
                              &client),
            OK);
        for (size_t i = 0; i < count && is_of_redis(&rungs[i]); i++) {
            dlock *lock;
            bool right = rungs[i].quorum ? servers >= 3 && servers % 2 == 1
                                         : servers == 1 || !rungs[i].distributed;
            dlock_status status = dlock_open(client, rungs[i].name, "lock:a", &lock);
            assert_int_equal(status, right ? DLOCK_OK : DLOCK_INVALID);
            snprintf(part, sizeof part,
                     rungs[i].quorum ? "'%s' needs an odd number of servers, 3 to 15, and the "
                                       "client has %zu; open a client with so many"
                                     : "'%s' works with one server, and the client has %zu; open a "
                                       "client with one of them",
                     rungs[i].name, servers);
            if (!right)
                assert_says(dlock_error(), part);
            dlock_close(lock);
        }
        dlock_client_close(client);
    }
}

static void a_client_has_a_uuid(void **state)
{
    (void)state;
    dlock_client *clients[2];
    for (int i = 0; i < 2; i++) {
        assert_status(dlock_client_open(NULL, &clients[i]), OK);
        const char *id = dlock_client_id(clients[i]);
        assert_int_equal(strlen(id), 36);
        for (size_t at = 0; at < 36; at++) {
            bool dash = at == 8 || at == 13 || at == 18 || at == 23;
            assert_true(dash ? id[at] == '-'
                             : isxdigit((unsigned char)id[at]) && !isupper((unsigned char)id[at]));
        }
        assert_int_equal(id[14], '4');
        assert_non_null(strchr("89ab", id[19]));
    }
    assert_string_not_equal(dlock_client_id(clients[0]), dlock_client_id(clients[1]));
    dlock_client_close(clients[0]);
    dlock_client_close(clients[1]);
}

/* ---- Limits of the system -------------------------------------------------------------------- */

static void no_descriptor_is_left(void **state)
{
    (void)state;
    dlock_client *client = client_of("redis://127.0.0.1:1", (struct dlock_options){0});
    dlock *lock = lock_of(client, "watchdog", "lock:a");
    dlock_client *none;
    dlock_hold *hold;
    struct rlimit before, now;
    int next = open("/dev/null", O_RDONLY | O_CLOEXEC);
    assert_true(next >= 0);
    close(next);
    getrlimit(RLIMIT_NOFILE, &before);
    now = before;
    now.rlim_cur = (rlim_t)next;
    setrlimit(RLIMIT_NOFILE, &now);
    dlock_status opened = dlock_client_open(NULL, &none);
    dlock_cancel *cancel = dlock_cancel_new();
    char why[SENTENCE_MAX];
    snprintf(why, sizeof why, "%s", dlock_error());
    dlock_status had = dlock_acquire(lock, NULL, &hold);
    setrlimit(RLIMIT_NOFILE, &before);
    assert_int_equal(opened, DLOCK_NO_MEMORY);
    assert_null(none);
    assert_null(cancel);
    assert_string_equal(why, "a cancel needs a descriptor: Too many open files");
    assert_int_equal(had, DLOCK_UNREACHABLE);
    assert_says(dlock_error(), "Too many open files");
    dlock_cancel_free(NULL);
    dlock_close(lock);
    dlock_client_close(client);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_is_contacted),
        cmocka_unit_test(the_ladder),
        cmocka_unit_test(no_such_rung_lists_those_there_are),
        cmocka_unit_test(a_rung_of_another_engine_needs_it),
        cmocka_unit_test(flawed_rungs_must_be_asked_for),
        cmocka_unit_test(names_have_1_to_512_bytes),
        cmocka_unit_test(a_rung_works_with_one_server_or_with_several),
        cmocka_unit_test(a_client_has_a_uuid),
        cmocka_unit_test(no_descriptor_is_left),
    };
    return cmocka_run_group_tests_name("open", tests, NULL, NULL);
}
