# SPDX-License-Identifier: Apache-2.0
"""A wrong answer to each exercise, as a learner might give it: what it gets wrong, and what is changed in the right one."""
import collections

Wrong = collections.namedtuple("Wrong", "what changes")

END_AFTER_THE_ANSWER = """static dlock_status end_timer(struct dlock_hold *hold, const struct answer *answer)
{
    timer_end(hold);
    return take_ours(hold, answer);
}

const struct rung_ops rung_mine"""

ALL = {
    "1.1": Wrong("each attempt has a mutex of its own", [
        ("    struct place *place = hold->lock_state;\n    return", "    struct place *place = &(struct place){.mutex = PTHREAD_MUTEX_INITIALIZER};\n    return")]),
    "1.2": Wrong("the flag stays set", [("        atomic_flag_clear(&mutex->locked);\n", "")]),
    "2.1": Wrong("one open file for all threads of the process, and flock() locks an open file", [
        ("    int file = open(", "    static int file = -1;\n    if (file < 0)\n        file = open("),
        ("    close(file);\n    return DLOCK_BUSY;", "    return DLOCK_BUSY;"),
        ("    close(mutex->file);", "    flock(mutex->file, LOCK_UN);")]),
    "2.2": Wrong("the file is locked for readers", [("LOCK_EX | LOCK_NB", "LOCK_SH | LOCK_NB")]),
    "3.1": Wrong("nothing calls send_give_up", [("    .send_give_up = send_give_up,\n", "")]),
    "3.2": Wrong("it takes the key over before its time has passed", [
        ("get.kind == DLOCK_REPLY_NIL || strtoll(get.text, NULL, 10) > wall_ms()", "get.kind == DLOCK_REPLY_NIL")]),
    "4.1": Wrong("the key gets the waiter's own time to live", [('"PEXPIRE", hold->key, "1000"', '"PEXPIRE", hold->key, hold->ttl')]),
    "4.2": Wrong("all clients write the same draft", [('"%s:%s", hold->key, hold->id', '"%s:%s", hold->key, "draft"')]),
    "5.1": Wrong("GT, which takes no expiry for the longest one", [('key, ttl, "NX"}', 'key, ttl, "GT"}')]),
    "5.2": Wrong("it does not ask whether the key exists", [("if (there.integer == 1)", "if (there.integer == 2)")]),
    "6.1": Wrong("nothing can happen between the check and the DEL", [('    point(env, "between_get_and_del");\n', "")]),
    "6.2": Wrong("nothing calls resolve", [("    .resolve = resolve,\n", "")]),
    "7.1": Wrong("the release deletes the lock of any holder", [('CALL(env, "HDEL", hold->key, hold->id)', 'CALL(env, "DEL", hold->key)')]),
    "7.2": Wrong("the client's name is in it", [("strchr(hold->owner, ':') + 1", "hold->owner")]),
    "8.1": Wrong("the library sends the script again", [
        ('CALL(env, "EVALSHA", lua_delete_if_owner.sha1,', "EVAL(env, &lua_delete_if_owner,")]),
    "8.2": Wrong("the inner release deletes", [("if (hold->depth > 1)", "if (hold->depth > 9)")]),
    "9.1": Wrong("the memory never expires", [("mine.until_ns = until_ns;", "mine.until_ns = INT64_MAX;")]),
    "9.2": Wrong("the thread remembers", [("static struct {", "static _Thread_local struct {")]),
    "10.1": Wrong("it writes before it checks", [('CALL(env, "GET", hold->key)', 'CALL(env, "GETSET", hold->key, hold->owner)')]),
    "10.2": Wrong("its own name keeps it out", [
        ("was.kind != DLOCK_REPLY_NIL && strcmp(was.text, hold->owner) != 0", "was.kind != DLOCK_REPLY_NIL")]),
    "11.1": Wrong("the release uses another name than the acquire", [
        ("hold->key, process_of(request, hold), hold->count);", "hold->key, hold->owner, hold->count);")]),
    "11.2": Wrong("the library's depth stands in for the count", [
        ('    struct answer del = CALL(env, "HDEL"',
         '    if (hold->depth > 1)\n        return DLOCK_OK;\n    struct answer del = CALL(env, "HDEL"')]),
    "12.1": Wrong("the timer ends when the answer has come", [
        ("    timer_end(hold); /* whatever becomes of the release */\n", ""),
        ("    .take_release = take_ours,", "    .take_release = end_timer,"),
        ("const struct rung_ops rung_mine", END_AFTER_THE_ANSWER)]),
    "12.2": Wrong("too few renewals for a long section", [("#define RENEWALS_MAX 6", "#define RENEWALS_MAX 1")]),
    "13.1": Wrong("nothing calls renew", [("    .renew = renew,\n", "")]),
    "13.2": Wrong("the key keeps its time to live", [('CALL(env, "PERSIST", hold->key)', 'CALL(env, "EXISTS", hold->key)')]),
    "14.1": Wrong("milliseconds are taken for seconds", [
        ("? answer->integer + 2\n", "? (answer->integer + 2) * 1000\n")]),
    "14.2": Wrong("the message goes to another channel", [('CALL(env, "PUBLISH", hold->key, "0")', 'CALL(env, "PUBLISH", hold->owner, "0")')]),
    "15.1": Wrong("it polls each second", [("busy->again_ms = FALLBACK_MS;", "busy->again_ms = 1000;")]),
    "15.2": Wrong("the message goes to the right channel", [
        ("channel_of(request, hold->owner), hold->owner,", "channel_of(request, hold->key), hold->owner,")]),
    "16.1": Wrong("the grant is as short as before", [("grant_ms = hold->ttl_ms;", "grant_ms = rung_grant_ms(hold);")]),
    "16.2": Wrong("it still asks by itself, each second", [("busy->again_ms = 3600000;", "busy->again_ms = 1000;")]),
    "17.1": Wrong("the writer's key gets the time to live", [('"PEXPIRE", keys.count, hold->ttl', '"PEXPIRE", hold->key, hold->ttl')]),
    "17.2": Wrong("a writer does not know its own name", [("said.kind == DLOCK_REPLY_NIL && !is_mine(env, hold)", "said.kind == DLOCK_REPLY_NIL")]),
    "18.1": Wrong("the mark stays", [
        ('        say(&request, hold, "give_up", hold->ttl);\n        rung_eval(env, request.script, request.argv);\n', "")]),
    "18.2": Wrong("the reader writes beside other readers", [("        return DLOCK_BUSY;\n    busy->no_publish", "        return DLOCK_OK;\n    busy->no_publish")]),
    "19.1": Wrong("every holder gets the same token", [("hold->token = (uint64_t)drawn.integer;", "hold->token = 1;")]),
    "19.2": Wrong("another item's mark is set", [('"inventory:{phone}:fence"', '"inventory:{pen}:fence"')]),
    "20.1": Wrong("the token is drawn, and not given", [("hold->token = (uint64_t)drawn.integer;", "hold->token = 0;")]),
    "20.2": Wrong("it keeps the number that it has counted", [("hold->token = seconds * 1000000 + us;", "hold->token = 1;")]),
    "21.1": Wrong("another key is deleted", [('{"DEL", hold->key, NULL}', '{"DEL", hold->id, NULL}')]),
    "21.2": Wrong("it is renewed", [("    .release = release,\n    .resolve", "    .release = release,\n    .renew = renew,\n    .resolve")]),
    "22.1": Wrong("the latest has the lock", [("'ZRANGE', KEYS[1], 0, 0)", "'ZRANGE', KEYS[1], -1, -1)")]),
    "22.2": Wrong("dead sessions are not removed", [("first) == 0 do ", "first) == 2 do ")]),
    "23.1": Wrong("nothing calls renew", [("    .renew = renew,\n", "")]),
    "23.2": Wrong("every holder gets the same token", [
        ("'SET', KEYS[2], revision)", "'SET', KEYS[2], 1)"), ("hold->token = (uint64_t)taken.integer;", "hold->token = 1;")]),
}
