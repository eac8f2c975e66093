/* SPDX-License-Identifier: Apache-2.0
 *
 * The keys of a lock: the application's keys beside them are not touched, two locks never share
 * one, and all of a lock's keys lie in one slot of a cluster.
 */
#include "calls.h"
#include "must.h"
#include "own_server.h"
#include "sound.h"
#include "waiter.h"

#include <stdio.h>
#include <stdlib.h>

/* What a lock keeps beside its own key. */
static const char *const kinds[] = {"token",   "queue",   "grant",  "holds",
                                    "readers", "writers", "invited"};
#define KINDS (sizeof kinds / sizeof kinds[0])

/* Without a brace, and with a hash tag as the whole name and as a part of it. */
static const char *const names[] = {"jobs", "{jobs}", "jobs:{7}:new"};
#define NAMES (sizeof names / sizeof names[0])

/* A rung that is not flawed and draws tokens keeps them in a key beside the lock's. */
static bool keeps_more(const struct dlock_rung *rung)
{
    return rung->tokens;
}

/* "dlock:<kind>:<name>", or "dlock:<kind>={<name>}" where the name has no hash tag. */
static void key_beside(char key[DLOCK_NAME_MAX], const char *kind, const char *name)
{
    const char *form = strchr(name, '{') != NULL ? "dlock:%s:%s" : "dlock:%s={%s}";
    snprintf(key, DLOCK_NAME_MAX, form, kind, name);
}

/* ---- The stage ------------------------------------------------------------------------------- */

struct side {
    dlock_client *client;
    dlock *lock;
};

static struct side side_of(const struct dlock_rung *rung, const char *name)
{
    struct side side = {.client = client_of(server_url(server), (struct dlock_options){0})};
    side.lock = lock_of(side.client, rung->name, name);
    return side;
}

static void side_close(struct side *side)
{
    dlock_close(side->lock);
    dlock_client_close(side->client);
}

/* Acquires in a mode, has another client wait for it, hands it over, waits in vain and breaks it:
 * all that a lock's scripts do with its keys. `during` looks while one holds and one waits. */
static void use(const struct dlock_rung *rung, const char *name, enum dlock_mode mode,
                void (*during)(const char *name))
{
    struct side side = side_of(rung, name), other = side_of(rung, name);
    dlock_hold *hold = acquired_as(side.lock, mode);
    struct waiter waiter = {.lock = other.lock, .want = {.wait_ms = PATIENCE_MS}};
    waiter_start(&waiter);
    eventually(stats_of(other.client).contended == 1);
    if (during != NULL)
        during(name);
    assert_status(dlock_release(hold, NULL), OK);
    assert_int_equal(waiter_end(&waiter), DLOCK_OK);
    struct dlock_want want = {.size = sizeof want, .wait_ms = 10, .mode = mode};
    assert_status(dlock_acquire(side.lock, &want, &hold), TIMED_OUT);
    assert_status(dlock_break(side.lock, NULL), OK);
    dlock_release(waiter.hold, NULL);
    side_close(&other);
    side_close(&side);
}

static void use_in_all_modes(const struct dlock_rung *rung, const char *name,
                             void (*during)(const char *name))
{
    use(rung, name, DLOCK_EXCLUSIVE, during);
    if (rung->shared)
        use(rung, name, DLOCK_SHARED, during);
}

/* ---- The application's keys ------------------------------------------------------------------ */

/* Keys that an application may well have beside one that it guards with a lock. */
static void fill(const char *name)
{
    server_text(server, "FLUSHALL");
    server_ask(server, "SET %s:token 41", name);
    server_ask(server, "SET %s:grant 41", name);
    server_ask(server, "RPUSH %s:queue one two three", name);
    server_ask(server, "HSET %s:holds one 1 two 2", name);
    for (size_t i = 4; i < KINDS; i++)
        server_ask(server, "ZADD %s:%s 1 one 2 two", name, kinds[i]);
}

/* The keys of that pattern with their values and the ends of their lives. */
static void digest(char text[41], const char *pattern)
{
    const char *digested = server_text(server, "EVAL %s 0 %s",
                                       "local all = '' "
                                       "local keys = redis.call('KEYS', ARGV[1]) "
                                       "table.sort(keys) "
                                       "for _, key in ipairs(keys) do "
                                       "all = all .. key .. redis.call('DUMP', key) .. "
                                       "redis.call('PEXPIRETIME', key) end "
                                       "return redis.sha1hex(all)",
                                       pattern);
    snprintf(text, 41, "%s", digested);
}

static void keys_of_the_application_are_left_alone(void **state)
{
    for (size_t i = 0; i < NAMES; i++) {
        char beside[64], before[41], after[41];
        snprintf(beside, sizeof beside, "%s:*", names[i]);
        fill(names[i]);
        digest(before, beside);
        use_in_all_modes(*state, names[i], NULL);
        digest(after, beside);
        assert_string_equal(after, before);
    }
}

/* ---- The lock's own keys --------------------------------------------------------------------- */

static bool is_reserved(const char *key, const char *name)
{
    char beside[DLOCK_NAME_MAX];
    for (size_t i = 0; i < KINDS; i++) {
        key_beside(beside, kinds[i], name);
        if (strcmp(key, beside) == 0)
            return true;
    }
    return strcmp(key, name) == 0 || strncmp(key, "dlock:wake:", 11) == 0 ||
           strncmp(key, "redisson_unlock_latch:", 22) == 0;
}

static char stray[DLOCK_NAME_MAX]; /* a key that is none of the lock's */

static void look_for_strays(const char *name)
{
    const redisReply *keys = server_ask(server, "KEYS *");
    for (size_t i = 0; i < keys->elements; i++)
        if (!is_reserved(keys->element[i]->str, name))
            snprintf(stray, sizeof stray, "%s", keys->element[i]->str);
}

/* Under the names that the header lists, and at rest each with an end to its life. */
static void keys_have_reserved_names(void **state)
{
    for (size_t i = 0; i < NAMES; i++) {
        server_text(server, "FLUSHALL");
        stray[0] = '\0';
        use_in_all_modes(*state, names[i], look_for_strays);
        look_for_strays(names[i]);
        assert_string_equal(stray, "");
        assert_string_equal(server_text(server, "EVAL %s 0",
                                        "for _, key in ipairs(redis.call('KEYS', '*')) do "
                                        "if redis.call('PTTL', key) < 0 then return key end end "
                                        "return ''"),
                            "");
    }
}

/* A lock may be called like what another one keeps. */
static void names_that_are_alike(void **state)
{
    const struct dlock_rung *rung = *state;
    for (size_t i = 0; i < KINDS; i++) {
        char longer[64];
        dlock_hold *hold, *beside;
        snprintf(longer, sizeof longer, "order:7:%s", kinds[i]);
        server_text(server, "FLUSHALL");
        struct side side = side_of(rung, "order:7"), other = side_of(rung, longer);
        assert_status(tried(other.lock, &beside), OK);
        assert_status(tried(side.lock, &hold), OK);
        assert_status(dlock_release(beside, NULL), OK);
        assert_true(dlock_valid(hold));
        assert_status(dlock_release(hold, NULL), OK);
        side_close(&other);
        side_close(&side);
    }
}

/* On a node of a cluster a script's keys must lie in one slot, whatever the name. */
static void all_keys_in_one_slot(void **state)
{
    static const char *const cluster[] = {"--cluster-enabled", "yes", NULL};
    (void)state;
    size_t count;
    const struct dlock_rung *rungs = single_rungs(&count);
    struct server *outside = server;
    server = server_start(cluster);
    server_text(server, "CLUSTER ADDSLOTSRANGE 0 16383");
    eventually(strstr(server_text(server, "CLUSTER INFO"), "cluster_state:ok") != NULL);
    for (size_t i = 0; i < count * NAMES; i++)
        if (!rungs[i / NAMES].flawed)
            use_in_all_modes(&rungs[i / NAMES], names[i % NAMES], NULL);
    server_free(server);
    server = outside;
}

/* ---- Names and values that are refused ------------------------------------------------------- */

/* "dlock:" is the library's. A brace without a hash tag gives the lock's keys no common slot; where
 * a lock is its own key alone, that does not matter. */
static void names_that_are_refused(void **state)
{
    static const char *const bad[] = {
        "a{b", "a}b", "{}a", "a{}", "}a{", "{}{a}", "dlock:", "dlock:a", "dlock:token:{a}"};
    static const char *const good[] = {"a", "a{b}c", "{a}{b}", "a{b}}", "adlock:", "a:dlock:b"};
    const struct dlock_rung *rung = *state;
    dlock_client *client = client_of(server_url(server), (struct dlock_options){0});
    dlock *lock;
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++)
        dlock_close(lock_of(client, rung->name, good[i]));
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        if (!keeps_more(rung) && strncmp(bad[i], "dlock:", 6) != 0) {
            dlock_close(lock_of(client, rung->name, bad[i]));
            continue;
        }
        dlock_status status = dlock_open(client, rung->name, bad[i], &lock);
        if (status != DLOCK_INVALID)
            failed("the name '%s' answered %s", bad[i], dlock_status_name(status));
        assert_null(lock);
        assert_says(dlock_error(), bad[i]);
    }
    dlock_client_close(client);
}

/* A key of the lock holds something else. */
static const struct {
    const char *rung;
    const char *kind;
    const char *fill;     /* a command with room for the key */
    enum dlock_mode mode; /* of the acquire that reads it */
    bool contended;       /* another client holds the lock meanwhile */
} wrong[] = {
    {"notify", "token", "RPUSH %s one", DLOCK_EXCLUSIVE, false},
    {"fair", "token", "RPUSH %s one", DLOCK_EXCLUSIVE, false},
    {"fair", "queue", "SET %s one", DLOCK_EXCLUSIVE, false},
    {"fair", "queue", "SET %s one", DLOCK_EXCLUSIVE, true},
    {"fair", "grant", "RPUSH %s one", DLOCK_EXCLUSIVE, false},
    {"read_write", "token", "RPUSH %s one", DLOCK_EXCLUSIVE, false},
    {"read_write", "holds", "SET %s one", DLOCK_EXCLUSIVE, false},
    {"read_write", "writers", "SET %s one", DLOCK_EXCLUSIVE, true},
    {"read_write", "writers", "SET %s one", DLOCK_SHARED, false},
    {"read_write", "readers", "SET %s one", DLOCK_SHARED, true},
    {"read_write", "invited", "SET %s one", DLOCK_SHARED, false},
};

static void a_value_of_another_type(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        const char *name = names[i % NAMES];
        char key[DLOCK_NAME_MAX], before[41], after[41];
        dlock_hold *hold, *theirs = NULL;
        struct dlock_want want = {.size = sizeof want, .mode = wrong[i].mode};
        server_text(server, "FLUSHALL");
        key_beside(key, wrong[i].kind, name);
        struct side side = side_of(dlock_rung_find(wrong[i].rung), name);
        struct side other = side_of(dlock_rung_find(wrong[i].rung), name);
        if (wrong[i].contended)
            theirs = acquired(other.lock);
        server_ask(server, wrong[i].fill, key);
        digest(before, key);
        dlock_status status = dlock_acquire(side.lock, &want, &hold);
        if (status == DLOCK_OK || status == DLOCK_BUSY)
            failed("'%s' with a wrong '%s' answered %s", wrong[i].rung, key,
                   dlock_status_name(status));
        assert_says(dlock_error(), key);
        digest(after, key);
        assert_string_equal(after, before);
        server_integer(server, "DEL %s", key);
        if (theirs != NULL)
            assert_status(dlock_release(theirs, NULL), OK);
        hold = acquired(side.lock);
        assert_status(dlock_release(hold, NULL), OK);
        side_close(&other);
        side_close(&side);
    }
}

/* ---- Flawed rungs ---------------------------------------------------------------------------- */

#define FOREIGN "jobs"

static const char *const fills[][2] = {{"string", "SET %s one"},
                                       {"hash", "HSET %s one 1"},
                                       {"list", "RPUSH %s one"},
                                       {"zset", "ZADD %s 1 one"}};
#define FILLS (sizeof fills / sizeof fills[0])

/* What a flawed rung's key is while it is held. */
static void learn_type(struct side *side, char type[16])
{
    dlock_hold *hold = acquired(side->lock);
    snprintf(type, 16, "%s", server_text(server, "TYPE " FOREIGN));
    assert_status(dlock_release(hold, NULL), OK);
}

/* Its flaw, faithfully: a rejected attempt gives any key a time to live. */
static void setnx_multi_lets_it_expire(const struct dlock_rung *rung)
{
    if (strcmp(rung->name, "setnx_multi") != 0)
        return;
    assert_true(server_integer(server, "PTTL " FOREIGN) > 0);
    server_integer(server, "PERSIST " FOREIGN);
}

static void meets_another_type(const struct dlock_rung *rung, struct side *side, const char *fill)
{
    char before[41], after[41];
    struct dlock_holder holder = {.size = sizeof holder};
    dlock_hold *none;
    server_ask(server, fill, FOREIGN);
    digest(before, FOREIGN);
    dlock_status status = tried(side->lock, &none);
    if (status != DLOCK_BUSY && status != DLOCK_WRONG_TYPE)
        failed("'%s' answers %s after '%s'", rung->name, dlock_status_name(status), fill);
    setnx_multi_lets_it_expire(rung);
    assert_status(dlock_inspect(side->lock, &holder), WRONG_TYPE);
    assert_status(dlock_break(side->lock, &holder), WRONG_TYPE);
    assert_says(dlock_error(), rung->name);
    digest(after, FOREIGN);
    if (strcmp(after, before) != 0)
        failed("'%s' changed what '%s' had filled", rung->name, fill);
    server_integer(server, "DEL " FOREIGN);
}

/* Apart from their flaws they change no key of another type, and a break names it. */
static void a_flawed_rung_meets_another_type(void **state)
{
    (void)state;
    size_t count;
    const struct dlock_rung *rungs = single_rungs(&count);
    for (size_t i = 0; i < count; i++) {
        char type[16];
        if (!rungs[i].flawed || !rungs[i].distributed)
            continue;
        server_text(server, "FLUSHALL");
        struct side side = side_of(&rungs[i], FOREIGN);
        learn_type(&side, type);
        for (size_t j = 0; j < FILLS; j++)
            if (strcmp(fills[j][0], type) != 0)
                meets_another_type(&rungs[i], &side, fills[j][1]);
        side_close(&side);
    }
}

/* Their flaws, faithfully: the release deletes what it does not know. */
static void a_flawed_release_deletes_anything(void **state)
{
    static const char *const rungs[] = {"setnx", "setnx_expire", "setnx_multi", "set_nx_ex",
                                        "rw_counter"};
    (void)state;
    server_text(server, "FLUSHALL");
    for (size_t i = 0; i < sizeof rungs / sizeof rungs[0]; i++) {
        struct side side = side_of(dlock_rung_find(rungs[i]), FOREIGN);
        dlock_hold *hold = acquired(side.lock);
        server_integer(server, "DEL " FOREIGN);
        server_integer(server, "RPUSH " FOREIGN " one");
        assert_status(dlock_release(hold, NULL), OK);
        assert_int_equal(server_integer(server, "EXISTS " FOREIGN), 0);
        side_close(&side);
    }
}

/* And the attempt writes over what it does not know. */
static void a_flawed_attempt_overwrites_a_string(void **state)
{
    (void)state;
    dlock_hold *none;
    server_text(server, "SET " FOREIGN " theirs");
    struct side side = side_of(dlock_rung_find("reentrant_getset"), FOREIGN);
    assert_status(tried(side.lock, &none), BUSY);
    assert_string_equal(server_text(server, "TYPE " FOREIGN), "string");
    assert_says(server_text(server, "GET " FOREIGN), dlock_client_id(side.client));
    server_integer(server, "DEL " FOREIGN);
    side_close(&side);
}

/* The readers' count of rw_counter is a number. */
static void a_break_leaves_what_is_no_count(void **state)
{
    (void)state;
    server_text(server, "FLUSHALL");
    struct side side = side_of(dlock_rung_find("rw_counter"), FOREIGN);
    dlock_hold *hold = acquired(side.lock);
    server_integer(server, "RPUSH " FOREIGN ":read_count one");
    assert_status(dlock_break(side.lock, NULL), OK);
    assert_int_equal(server_integer(server, "EXISTS " FOREIGN), 0);
    assert_int_equal(server_integer(server, "LLEN " FOREIGN ":read_count"), 1);
    assert_status(dlock_release(hold, NULL), LOST);
    side_close(&side);
}

/* ---- Later steps, and rights that are missing ------------------------------------------------ */

enum step { EXTEND, RELEASE, BREAK, STEPS };

static dlock_status take(enum step step, dlock *lock, dlock_hold **hold)
{
    dlock_hold *held = *hold;
    if (step == EXTEND)
        return dlock_extend(held);
    if (step == BREAK)
        return dlock_break(lock, NULL);
    *hold = NULL;
    return dlock_release(held, NULL);
}

/* In one step: a waiter may ask again at any time. */
static void replace(const char *key, const char *type)
{
    server_text(server, "EVAL %s 1 %s %s",
                "redis.call('DEL', KEYS[1]) "
                "if ARGV[1] == 'hash' then redis.call('HSET', KEYS[1], 'one', 1) "
                "else redis.call('SET', KEYS[1], 'one') end return ''",
                key, type);
}

/* A key of the lock is replaced while one holds it, and another waits or not: no step changes it,
 * its end neither. A release or a break that succeeds has freed the lock, else it is as it was. */
static void step_beside(const struct dlock_rung *rung, const char *kind, enum step step, int waits)
{
    const char *name = "jobs";
    char key[DLOCK_NAME_MAX], before[41], after[41];
    server_text(server, "FLUSHALL");
    key_beside(key, kind, name);
    struct side side = side_of(rung, name), other = side_of(rung, name);
    dlock_cancel *cancel = dlock_cancel_new();
    struct waiter waiter = {.lock = other.lock,
                            .want = {.wait_ms = PATIENCE_MS,
                                     .cancel = cancel,
                                     .mode = waits == 2 ? DLOCK_SHARED : DLOCK_EXCLUSIVE}};
    dlock_hold *hold = acquired(side.lock);
    if (waits > 0) {
        waiter_start(&waiter);
        eventually(stats_of(other.client).contended == 1);
    }
    replace(key, strcmp(kind, "holds") == 0 ? "string" : "hash");
    digest(before, key);
    dlock_status status = take(step, side.lock, &hold);
    digest(after, key);
    if (strcmp(after, before) != 0)
        failed("'%s' is changed by step %d, which answers %s", key, step,
               dlock_status_name(status));
    if (status != DLOCK_OK)
        assert_int_equal(status, DLOCK_WRONG_TYPE);
    if (step == RELEASE && status != DLOCK_OK)
        assert_says(dlock_error(), key);
    if (waits == 0)
        assert_int_equal(server_integer(server, "EXISTS %s", name),
                         step == EXTEND || status != DLOCK_OK);
    if (hold != NULL)
        dlock_release(hold, NULL);
    dlock_cancel_now(cancel);
    if (waits > 0 && waiter_end(&waiter) == DLOCK_OK)
        dlock_release(waiter.hold, NULL);
    dlock_cancel_free(cancel);
    side_close(&other);
    side_close(&side);
}

static void a_value_of_another_type_at_a_later_step(void **state)
{
    const struct dlock_rung *rung = *state;
    for (size_t i = 0; keeps_more(rung) && i < KINDS; i++)
        for (int step = 0; step < STEPS; step++)
            for (int waits = 0; waits < (rung->shared ? 3 : 2); waits++)
                step_beside(rung, kinds[i], step, waits);
}

/* What a user may do is set by rules as of ACL SETUSER, beyond which it may do all. */
static struct side limited_side(const struct dlock_rung *rung, const char *name, const char *rules)
{
    char url[64];
    snprintf(url, sizeof url, "redis://limited:x@127.0.0.1:%d", server_port(server));
    server_text(server, "ACL SETUSER limited reset on nopass ~* &* +@all");
    if (rules[0] != '\0')
        server_text(server, "ACL SETUSER limited %s", rules);
    struct side side = {.client = client_of(url, (struct dlock_options){0})};
    side.lock = lock_of(side.client, rung->name, name);
    return side;
}

/* Up to two rules, each of which takes a command from the user. */
struct rules {
    const char *one;
    const char *other; /* or NULL */
};

static void each_key_has_an_end(const struct rules *rules, const char *step)
{
    const char *endless = server_text(server, "EVAL %s 0",
                                      "for _, key in ipairs(redis.call('KEYS', '*')) do "
                                      "if redis.call('PTTL', key) < 0 then return key end end "
                                      "return ''");
    if (endless[0] != '\0')
        failed("with %s %s a %s leaves '%s' without an end", rules->one,
               rules->other != NULL ? rules->other : "", step, endless);
}

/* From its first acquire on, from the nested one on, or later. */
enum refused_from { FIRST, NESTED, LATER, FROM_EACH };

static void refuse(const struct rules *rules, enum refused_from from, enum refused_from now)
{
    if (from == now)
        server_text(server, "ACL SETUSER limited %s %s", rules->one,
                    rules->other != NULL ? rules->other : rules->one);
}

/* The limited side holds the lock and lets it go while the other waits. */
static void hold_and_release(const struct dlock_rung *rung, struct side *side, struct side *other,
                             enum dlock_mode mode, const struct rules *rules,
                             enum refused_from from)
{
    dlock_hold *outer = NULL, *inner = NULL;
    struct dlock_want want = {.size = sizeof want, .owner_id = 7, .ttl_ms = 10000};
    dlock_cancel *cancel = dlock_cancel_new();
    struct waiter waiter = {.lock = other->lock,
                            .want = {.wait_ms = PATIENCE_MS, .cancel = cancel, .mode = mode}};
    refuse(rules, from, FIRST);
    dlock_acquire(side->lock, &want, &outer);
    each_key_has_an_end(rules, "first acquire");
    refuse(rules, from, NESTED);
    want.ttl_ms = 20000;
    if (outer != NULL && rung->reentrant)
        dlock_acquire(side->lock, &want, &inner);
    each_key_has_an_end(rules, "nested acquire");
    refuse(rules, from, LATER);
    waiter_start(&waiter);
    eventually(stats_of(other->client).acquired + stats_of(other->client).contended > 0);
    if (outer != NULL)
        dlock_extend(outer);
    each_key_has_an_end(rules, "renewal");
    if (inner != NULL)
        dlock_release(inner, NULL);
    each_key_has_an_end(rules, "nested release");
    if (outer != NULL)
        dlock_release(outer, NULL);
    each_key_has_an_end(rules, "release");
    dlock_cancel_now(cancel);
    waiter_end(&waiter);
    dlock_release(waiter.hold, NULL);
    dlock_cancel_free(cancel);
    dlock_break(other->lock, NULL);
}

/* It waits in vain, and breaks the lock. */
static void wait_and_break(struct side *side, struct side *other, const struct rules *rules)
{
    dlock_hold *theirs = acquired(other->lock), *hold;
    struct dlock_want want = {.size = sizeof want, .wait_ms = 10};
    dlock_acquire(side->lock, &want, &hold);
    each_key_has_an_end(rules, "wait");
    dlock_break(side->lock, NULL);
    each_key_has_an_end(rules, "break");
    dlock_release(theirs, NULL);
    dlock_release(hold, NULL);
}

/* All steps that a lock has, by a user that is refused some of their commands. */
static void take_steps(const struct dlock_rung *rung, const struct rules *rules)
{
    for (int i = 0; i < FROM_EACH * (rung->shared ? 2 : 1); i++) {
        server_text(server, "FLUSHALL");
        struct side side = limited_side(rung, "jobs", ""), other = side_of(rung, "jobs");
        hold_and_release(rung, &side, &other, i < FROM_EACH ? DLOCK_EXCLUSIVE : DLOCK_SHARED, rules,
                         (enum refused_from)(i % FROM_EACH));
        wait_and_break(&side, &other, rules);
        side_close(&other);
        side_close(&side);
    }
}

/* The commands that the server was sent, or that scripts called; `found` has room for `most`. */
static size_t commands_used(char found[][32], size_t most)
{
    const char *stats = server_text(server, "INFO commandstats");
    size_t count = 0;
    for (const char *at = strstr(stats, "cmdstat_"); at != NULL && count < most;
         at = strstr(at + 1, "cmdstat_"))
        if (sscanf(at, "cmdstat_%31[a-z]:", found[count]) == 1 &&
            at[8 + strlen(found[count])] == ':')
            count++;
    return count;
}

/* Whichever command is refused, in the middle of a script, too, and PEXPIRE with it: no key is left
 * without an end. What could take the key back may be refused as well. */
static void each_command_is_refused_once(void **state)
{
    char commands[96][32], rule[34];
    server_text(server, "CONFIG RESETSTAT");
    take_steps(*state, &(struct rules){"+@all", NULL});
    take_steps(*state, &(struct rules){"-pexpire", NULL}); /* what would take a key back is used */
    size_t count = commands_used(commands, 96);
    assert_in_range(count, 5, 95);
    for (size_t i = 0; i < count; i++) {
        snprintf(rule, sizeof rule, "-%.32s", commands[i]);
        take_steps(*state, &(struct rules){rule, NULL});
        take_steps(*state, &(struct rules){rule, "-pexpire"});
    }
}

/* A command is refused after the acquire. The release has freed the lock, or it answers REFUSED and
 * the lock is held. */
static void a_release_that_is_refused(void **state)
{
    char commands[96][32], rule[34];
    const struct dlock_rung *rung = *state;
    server_text(server, "CONFIG RESETSTAT");
    take_steps(rung, &(struct rules){"+@all", NULL});
    size_t count = commands_used(commands, 96);
    for (size_t i = 0; i < count * (rung->shared ? 2 : 1); i++) {
        struct dlock_holder holder = {.size = sizeof holder};
        server_text(server, "FLUSHALL");
        struct side side = limited_side(rung, "jobs", ""), other = side_of(rung, "jobs");
        dlock_hold *hold = acquired_as(side.lock, i < count ? DLOCK_EXCLUSIVE : DLOCK_SHARED);
        snprintf(rule, sizeof rule, "-%.32s", commands[i % count]);
        server_text(server, "ACL SETUSER limited %s", rule);
        dlock_status status = dlock_release(hold, NULL);
        assert_status(dlock_inspect(other.lock, &holder), OK);
        if (holder.held != (status != DLOCK_OK))
            failed("with %s a release answers %s, and the lock is %s", rule,
                   dlock_status_name(status), holder.held ? "held" : "free");
        assert_true(status == DLOCK_OK || status == DLOCK_REFUSED);
        side_close(&other);
        side_close(&side);
    }
}

/* A user that may not PEXPIRE any more hands its lock over all the same. */
static void a_hand_over_without_an_end(void **state)
{
    server_text(server, "FLUSHALL");
    struct side side = limited_side(*state, "jobs", ""), other = side_of(*state, "jobs");
    struct waiter waiter = {.lock = other.lock, .want = {.wait_ms = PATIENCE_MS}};
    dlock_hold *hold = acquired(side.lock);
    waiter_start(&waiter);
    eventually(stats_of(other.client).contended == 1);
    server_text(server, "ACL SETUSER limited -pexpire");
    assert_status(dlock_release(hold, NULL), OK);
    assert_int_equal(waiter_end(&waiter), DLOCK_OK);
    each_key_has_an_end(&(struct rules){"-pexpire", NULL}, "hand-over");
    assert_status(dlock_release(waiter.hold, NULL), OK);
    side_close(&other);
    side_close(&side);
}

/* A new user of Redis has no channels. Its releases and breaks are what they are all the same, and
 * whoever waits asks again by itself. */
static void a_user_without_channels(void **state)
{
    struct dlock_holder holder = {.size = sizeof holder};
    server_text(server, "FLUSHALL");
    struct side side = limited_side(*state, "jobs", "resetchannels");
    struct side other = side_of(*state, "jobs");
    struct waiter waiter = {.lock = other.lock, .want = {.wait_ms = PATIENCE_MS}};
    dlock_hold *hold = acquired(side.lock);
    waiter_start(&waiter);
    eventually(stats_of(other.client).contended == 1);
    assert_status(dlock_release(hold, NULL), OK);
    assert_int_equal(waiter_end(&waiter), DLOCK_OK);
    assert_status(dlock_break(side.lock, &holder), OK);
    assert_true(holder.held);
    dlock_release(waiter.hold, NULL);
    side_close(&other);
    side_close(&side);
}

int main(void)
{
    static const struct scenario scenarios[] = {
        SCENARIO(keys_of_the_application_are_left_alone, EACH_SOUND),
        SCENARIO(keys_have_reserved_names, EACH_SOUND),
        SCENARIO(names_that_are_alike, EACH_SOUND),
        SCENARIO(names_that_are_refused, EACH_SOUND),
        SCENARIO(a_value_of_another_type, ONCE),
        SCENARIO(a_flawed_rung_meets_another_type, ONCE),
        SCENARIO(a_flawed_release_deletes_anything, ONCE),
        SCENARIO(a_flawed_attempt_overwrites_a_string, ONCE),
        SCENARIO(a_break_leaves_what_is_no_count, ONCE),
        SCENARIO(a_value_of_another_type_at_a_later_step, EACH_SOUND),
        SCENARIO(each_command_is_refused_once, EACH_SOUND),
        SCENARIO(a_release_that_is_refused, EACH_SOUND),
        SCENARIO(a_hand_over_without_an_end, EACH_SOUND),
        SCENARIO(a_user_without_channels, EACH_SOUND),
        SCENARIO(all_keys_in_one_slot, ONCE),
    };
    return run_scenarios("keys", scenarios, sizeof scenarios / sizeof scenarios[0], start_server,
                         stop_server);
}
