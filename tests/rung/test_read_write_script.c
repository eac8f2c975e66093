/* SPDX-License-Identifier: Apache-2.0
 *
 * read_write's script at random, step by step, against its rules: who is in, who is kept out and
 * why, that nobody who may come in sleeps on, and that nothing stays behind.
 */
#include "calls.h"
#include "must.h"
#include "own_server.h"
#include "redis_rung.h"

#include <stdio.h>
#include <stdlib.h>

#define LOCK "lock:{script}"
#define HOLDS "dlock:holds:" LOCK
#define READERS "dlock:readers:" LOCK
#define WRITERS "dlock:writers:" LOCK
#define INVITED "dlock:invited:" LOCK
#define TOKEN "dlock:token:" LOCK
#define FREE "dlock:free:" LOCK
#define KEYS "7 " LOCK " " HOLDS " " READERS " " WRITERS " " INVITED " " TOKEN " " FREE
#define TTL "600000"
#define GRANT "60000"
#define TURN_AND_2 "60002"
#define OWNERS 5
#define HOLDS_MAX 4
#define STEPS 10000

static const char *const marks[] = {READERS, WRITERS, INVITED};

/* ---- What should be -------------------------------------------------------------------------- */

struct owner {
    char name[8];
    char holds[HOLDS_MAX][16]; /* "r7" */
    int count;
    char wanted[16]; /* what it waits for, "" if it does not */
    bool awake;      /* it was woken and has not asked since */
    bool marked;     /* it is known that it waits */
    bool invited;    /* it waited through a write: known, too, but before any writer */
    bool knows_turn; /* and asks again when those that are invited are awaited no more */
};

struct model {
    struct owner owners[OWNERS];
    unsigned seed;
    int numbers; /* of acquisitions */
    long long token;
    int dead, dead_invited; /* readers that waited */
    redisContext *ear;
    /* for the test to know that all came up */
    int granted[2], kept_out[2], told[2], refused, passed_writers, turns;
};

static bool has(const struct owner *owner, char kind)
{
    for (int i = 0; i < owner->count; i++)
        if (owner->holds[i][0] == kind)
            return true;
    return false;
}

/* How many others hold, write, wait to write, are invited. */
static int others(const struct model *m, const struct owner *but,
                  bool (*counts)(const struct owner *))
{
    int count = 0;
    for (int i = 0; i < OWNERS; i++)
        count += &m->owners[i] != but && counts(&m->owners[i]);
    return count;
}

static bool holding(const struct owner *owner)
{
    return owner->count > 0;
}

static bool writing(const struct owner *owner)
{
    return has(owner, 'w');
}

static bool waiting_writer(const struct owner *owner)
{
    return owner->wanted[0] == 'w' && owner->marked;
}

static bool waiting_reader(const struct owner *owner)
{
    return owner->wanted[0] == 'r' && owner->marked;
}

static bool invited(const struct owner *owner)
{
    return owner->invited;
}

static bool awake(const struct owner *owner)
{
    return owner->wanted[0] != '\0' && owner->awake;
}

static bool turn(const struct model *m)
{
    return m->dead_invited > 0 || others(m, NULL, invited) > 0;
}

static bool may_enter(const struct model *m, const struct owner *owner, char kind)
{
    if (holding(owner))
        return kind == 'r' || has(owner, 'w');
    if (kind == 'w')
        return others(m, owner, holding) == 0 && !turn(m);
    return others(m, owner, writing) == 0 &&
           (owner->invited || others(m, owner, waiting_writer) == 0);
}

/* ---- Messages -------------------------------------------------------------------------------- */

static void start_to_listen(struct model *m)
{
    m->ear = redisConnectUnix(server_socket(server));
    must(m->ear != NULL && m->ear->err == 0);
    redisReply *reply = redisCommand(m->ear, "SUBSCRIBE " FREE " end");
    must(reply != NULL);
    freeReplyObject(reply);
    must(redisGetReply(m->ear, (void **)&reply) == REDIS_OK);
    freeReplyObject(reply);
}

/* It need not be let in, where it is told how long the invited are awaited. */
static bool has_to_ask(const struct model *m, const struct owner *owner)
{
    return may_enter(m, owner, owner->wanted[0]) ||
           (owner->wanted[0] == 'w' && others(m, owner, holding) == 0);
}

/* As in one process: all who wait to read, or one who waits to write and sleeps. Nobody is woken
 * for nothing: one at least of them has to ask. */
static void wake(struct model *m, bool readers)
{
    int first = rand_r(&m->seed) % OWNERS;
    bool in_vain = !readers || m->dead + m->dead_invited == 0; /* else it is for them */
    for (int i = 0; i < OWNERS; i++) {
        struct owner *owner = &m->owners[(first + i) % OWNERS];
        if (owner->wanted[0] != (readers ? 'r' : 'w'))
            continue;
        in_vain &= !has_to_ask(m, owner);
        if (owner->awake)
            continue;
        owner->awake = true;
        if (!readers)
            break;
    }
    assert_false(in_vain);
    m->told[readers]++;
}

/* One who waits to write and sleeps. */
static void tell_turn(struct model *m)
{
    int first = rand_r(&m->seed) % OWNERS;
    for (int i = 0; i < OWNERS; i++) {
        struct owner *owner = &m->owners[(first + i) % OWNERS];
        if (owner->wanted[0] == 'w' && !owner->awake) {
            owner->knows_turn = true;
            return;
        }
    }
}

static void told(struct model *m, const char *message)
{
    wake(m, message[0] == 'r');
    if (strcmp(message, "0") == 0 || strcmp(message, "r") == 0)
        return;
    assert_string_equal(message, "r" TURN_AND_2);
    tell_turn(m);
}

/* Returns how many messages there were. */
static int hear(struct model *m)
{
    server_integer(server, "PUBLISH end 1");
    for (int count = 0;; count++) {
        redisReply *message;
        must(redisGetReply(m->ear, (void **)&message) == REDIS_OK);
        bool end = strcmp(message->element[1]->str, "end") == 0;
        if (!end)
            told(m, message->element[2]->str);
        freeReplyObject(message);
        if (end)
            return count;
    }
}

/* ---- Steps ----------------------------------------------------------------------------------- */

/* alone: it is the only hold of its owner. */
static const redisReply *run(const char *what, const char *owner, const char *hold, bool alone)
{
    const redisReply *reply =
        server_ask(server, "EVAL %s " KEYS " %s %s %s " TTL " %s " GRANT, lua_read_write.text, what,
                   owner, hold, alone ? "alone" : "nested");
    if (reply->type == REDIS_REPLY_ERROR)
        failed("%s", reply->str);
    return reply;
}

static void stop_waiting(struct owner *owner)
{
    owner->wanted[0] = '\0';
    owner->awake = owner->marked = owner->invited = owner->knows_turn = false;
}

static void granted(struct model *m, struct owner *owner, const redisReply *reply)
{
    char kind = owner->wanted[0];
    long long token = reply->integer;
    assert_int_equal(reply->type, REDIS_REPLY_INTEGER);
    assert_true(token > m->token);
    /* The same request once more, because its reply was lost: the same hold, a new token. */
    m->token = run("acquire", owner->name, owner->wanted, owner->count == 0)->integer;
    assert_true(m->token > token);
    m->passed_writers += kind == 'r' && owner->count == 0 && others(m, owner, waiting_writer) > 0;
    strcpy(owner->holds[owner->count++], owner->wanted);
    stop_waiting(owner);
    m->granted[kind == 'w']++;
}

static void ask(struct model *m, struct owner *owner)
{
    char kind = owner->wanted[0];
    bool refused = kind == 'w' && holding(owner) && !has(owner, 'w');
    bool may = may_enter(m, owner, kind);
    const redisReply *reply = run("acquire", owner->name, owner->wanted, owner->count == 0);
    if (refused) {
        assert_int_equal(reply->type, REDIS_REPLY_NIL);
        stop_waiting(owner);
        m->refused++;
    } else if (may) {
        granted(m, owner, reply);
    } else {
        assert_int_equal(reply->type, REDIS_REPLY_INTEGER);
        assert_true(reply->integer < 0 && reply->integer >= -5000);
        owner->awake = false;
        owner->marked = true;
        owner->knows_turn = kind == 'w' && others(m, owner, holding) == 0;
        m->kept_out[kind == 'w']++;
    }
}

/* A write ended: the readers that wait are invited. */
static void invite(struct model *m)
{
    for (int i = 0; i < OWNERS; i++) {
        struct owner *owner = &m->owners[i];
        owner->invited = waiting_reader(owner);
        if (owner->invited)
            owner->marked = false;
    }
    m->dead_invited = m->dead;
    m->dead = 0;
}

static void release(struct model *m, struct owner *owner)
{
    int which = rand_r(&m->seed) % owner->count;
    bool wrote = has(owner, 'w');
    char hold[16];
    strcpy(hold, owner->holds[which]);
    for (int i = which + 1; i < owner->count; i++)
        strcpy(owner->holds[i - 1], owner->holds[i]);
    owner->count--;
    const bool alone = owner->count == 0;
    assert_int_equal(run("release", owner->name, hold, alone)->integer, 1);
    if (wrote && !has(owner, 'w') && (m->dead > 0 || others(m, NULL, waiting_reader) > 0))
        invite(m);
    /* The same request once more, because its reply was lost: it does nothing. That the owner still
     * has other holds says that this one was let go. */
    hear(m);
    assert_int_equal(run("release", owner->name, hold, alone)->integer, alone ? 0 : 1);
    assert_int_equal(hear(m), 0);
}

static void time_passes(struct model *m)
{
    for (int i = 0; i < OWNERS; i++)
        m->owners[i].awake = true;
}

/* Whose time is over is out, with the next who says anything; those who wait ask at that time. A
 * nested acquire is told so, and begins nothing. */
static void expire(struct model *m, struct owner *owner)
{
    server_integer(server, "ZADD " LOCK " 1 %s", owner->name);
    assert_int_equal(run("acquire", owner->name, "r0", false)->integer, 0);
    assert_int_equal(run("acquire", owner->name, "w0", false)->integer, 0);
    assert_int_equal(run("renew", owner->name, owner->holds[0], false)->integer, 0);
    owner->count = 0;
    time_passes(m);
}

/* It was not heard of for so long that it counts as gone; it is late only. */
static void forget(struct model *m, struct owner *owner)
{
    char mark[32];
    snprintf(mark, sizeof mark, "%s %s " GRANT, owner->name, owner->wanted);
    for (size_t i = 0; i < sizeof marks / sizeof marks[0]; i++)
        server_integer(server, "ZREM %s %s", marks[i], mark);
    owner->marked = owner->invited = false;
    time_passes(m);
}

/* It waits to read. */
static void die(struct model *m, struct owner *owner)
{
    m->dead_invited += owner->invited;
    m->dead += owner->marked;
    stop_waiting(owner);
}

/* The invited that have not come are awaited no more: who knows that asks. */
static void turn_ends(struct model *m)
{
    server_integer(server, "DEL " INVITED);
    m->dead_invited = 0;
    for (int i = 0; i < OWNERS; i++) {
        struct owner *owner = &m->owners[i];
        m->turns += owner->knows_turn;
        owner->awake |= owner->knows_turn;
        owner->invited = owner->knows_turn = false;
    }
}

static void give_up(struct owner *owner)
{
    char hold[16];
    strcpy(hold, owner->wanted);
    stop_waiting(owner);
    assert_int_equal(run("give_up", owner->name, hold, owner->count == 0)->integer, 0);
}

static void step(struct model *m)
{
    struct owner *owner = &m->owners[rand_r(&m->seed) % OWNERS];
    int dice = rand_r(&m->seed) % 100;
    if (turn(m) && dice % 10 == 0) {
        turn_ends(m);
    } else if (owner->wanted[0] != '\0') {
        if (dice < 4 && owner->wanted[0] == 'r')
            die(m, owner);
        else if (dice < 12)
            give_up(owner);
        else if (dice >= 94)
            forget(m, owner);
        else if (owner->awake || dice < 50)
            ask(m, owner);
    } else if (dice < 50 && owner->count < HOLDS_MAX) {
        char kind = rand_r(&m->seed) % 2 == 0 ? 'r' : 'w';
        snprintf(owner->wanted, sizeof owner->wanted, "%c%d", kind, ++m->numbers);
        ask(m, owner);
    } else if (owner->count > 0 && dice < 96) {
        release(m, owner);
    } else if (owner->count > 0) {
        expire(m, owner);
    }
    hear(m);
}

/* ---- What is --------------------------------------------------------------------------------- */

static void check_holders(const struct model *m)
{
    int holders = 0;
    for (int i = 0; i < OWNERS; i++) {
        const struct owner *owner = &m->owners[i];
        char list[HOLDS_MAX * 16 + 2] = "";
        for (int j = 0; j < owner->count; j++) {
            strcat(list, " ");
            strcat(list, owner->holds[j]);
        }
        if (owner->count > 0)
            strcat(list, " ");
        holders += owner->count > 0;
        assert_string_equal(server_text(server, "HGET " HOLDS " %s", owner->name), list);
        for (int j = 0; j < owner->count; j++)
            assert_int_equal(run("renew", owner->name, owner->holds[j], false)->integer, 1);
    }
    assert_int_equal(server_integer(server, "ZCARD " LOCK), holders);
    assert_int_equal(server_integer(server, "HLEN " HOLDS), holders);
    if (others(m, NULL, writing) > 0)
        assert_int_equal(holders, 1);
}

static void check_marks(const struct model *m)
{
    assert_int_equal(server_integer(server, "ZCARD " WRITERS), others(m, NULL, waiting_writer));
    assert_int_equal(server_integer(server, "ZCARD " READERS),
                     others(m, NULL, waiting_reader) + m->dead);
    assert_int_equal(server_integer(server, "ZCARD " INVITED),
                     others(m, NULL, invited) + m->dead_invited);
}

/* Unless somebody has been woken and is about to ask, nobody sleeps who may come in. */
static void check_nobody_sleeps_on(const struct model *m)
{
    if (others(m, NULL, awake) > 0)
        return;
    for (int i = 0; i < OWNERS; i++) {
        const struct owner *owner = &m->owners[i];
        if (owner->wanted[0] != '\0')
            assert_false(may_enter(m, owner, owner->wanted[0]));
    }
}

static void check_everything_has_an_end(void)
{
    static const char *const keys[] = {LOCK, HOLDS, READERS, WRITERS, INVITED, TOKEN};
    for (size_t i = 0; i < 6; i++)
        assert_int_not_equal(server_integer(server, "PTTL %s", keys[i]), -1);
}

static void at_random(void **state)
{
    (void)state;
    struct model m = {.seed = 20240511};
    for (int i = 0; i < OWNERS; i++)
        snprintf(m.owners[i].name, sizeof m.owners[i].name, "o%d", i);
    start_to_listen(&m);
    for (int i = 0; i < STEPS; i++) {
        step(&m);
        check_holders(&m);
        check_marks(&m);
        check_nobody_sleeps_on(&m);
        check_everything_has_an_end();
    }
    for (int i = 0; i < OWNERS; i++) {
        if (m.owners[i].wanted[0] != '\0')
            give_up(&m.owners[i]);
        while (m.owners[i].count > 0)
            release(&m, &m.owners[i]);
    }
    check_marks(&m);
    server_integer(server, "DEL " READERS " " INVITED); /* of the dead */
    assert_int_equal(server_integer(server, "EXISTS %s", LOCK), 0);
    for (size_t i = 0; i < sizeof marks / sizeof marks[0]; i++)
        assert_int_equal(server_integer(server, "EXISTS %s", marks[i]), 0);
    print_message("%d reads, %d writes, %d and %d kept out, %d refused, %d readers before writers, "
                  "%d turns of the dead, %d and %d messages\n",
                  m.granted[0], m.granted[1], m.kept_out[0], m.kept_out[1], m.refused,
                  m.passed_writers, m.turns, m.told[0], m.told[1]);
    assert_true(m.granted[0] > 100 && m.granted[1] > 100 && m.kept_out[0] > 100 &&
                m.kept_out[1] > 100 && m.refused > 20 && m.passed_writers > 20 && m.turns > 20 &&
                m.told[0] > 20 && m.told[1] > 100);
    redisFree(m.ear);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(at_random),
    };
    return cmocka_run_group_tests_name("read_write's script", tests, start_server, stop_server);
}
