# SPDX-License-Identifier: Apache-2.0
"""Mistakes that tests/torture must find: what is wrong, (file, text, what stands there instead) or a list of these,
and the rung. The first nine were in the library once; the others were chosen by somebody who had not seen the
torture."""

# A name is used again by the owner's next acquisition.
NAMES_AGAIN = ("lock/owner.c", "else if (hold->lock->rung.flawed)", "else if (hold->named_by != 0)")
# The old connection is not ended: what was sent on it may still be carried out.
NO_KILL = ("lock/redis/redis.c", "= node_may_kill(node, broken)", "= node_may_kill(node, broken) && broken->id < 0")
DOUBT_IGNORED = [NO_KILL, ("lock/redis/redis.c", "                  : KILL_IMPOSSIBLE;", "                  : KILL_DONE;")]

MUTANTS = [
    ("a waiter that leaves can still be chosen for the hand-off", [
        ("lock/wait.c", "    if (wait->state == WAIT_BEHIND) {\n        wait->trying_ns",
         "    if (false) {\n        wait->trying_ns"),
        ("lock/wait.c", "    if (acquired && lock->holding->keeps_place)\n        return;",
         "    if (state == WAIT_BEHIND || (acquired && lock->holding->keeps_place))\n        return;")], "fair"),
    ("a late release frees a later hold of its owner", [NAMES_AGAIN, *DOUBT_IGNORED], "notify"),
    ("a lost acquire is resolved by the count of an earlier hold", [
        NAMES_AGAIN,
        ("lock/rungs/reentrant.c", "const struct rung_ops rung_reentrant = {",
         '#include <stdlib.h>\nstatic dlock_status resolve(struct rung_env *env, struct dlock_hold *hold)\n{\n'
         '    struct answer count = CALL(env, "HGET", hold->key, hold->owner);\n'
         '    if (count.status != DLOCK_OK)\n        return count.status;\n'
         '    return strtoull(count.text, NULL, 10) == hold->depth ? DLOCK_OK : DLOCK_BUSY;\n}\n'
         'const struct rung_ops rung_reentrant = {\n    .resolve = resolve,')], "reentrant"),
    ("a late first acquire ends the other holds of its owner", [
        NAMES_AGAIN, *DOUBT_IGNORED,
        ("lock/lua/read_write.lua", "    if not mine and nested == 'nested' then\n        return 0\n    end\n",
         "    if not mine and nested == 'nested' then\n        return 0\n    end\n"
         "    if mine and not at and nested == 'alone' then\n        set_holds(' ')\n        mine = nil\n    end\n")],
     "read_write"),
    ("a nested acquire hides that the outer hold was lost", [
        ("lock/lua/reentrant_acquire.lua", "(free and ARGV[3] ~= '1') or ", "")], "watchdog"),
    ("the keys beside the lock have names that an application uses", [
        ("lock/redis/redis_engine.c", 'snprintf(key, room, has_tag(lock->name) ? "dlock:%s:%s" : "dlock:%s={%s}", beside[i].kind,\n'
         '                 lock->name);', 'snprintf(key, room, "%s:%s", lock->name, beside[i].kind);')], "fair"),
    ("an acquire without an owner nests in the holds of its thread", [
        ("lock/owner.c", "    if (owner_id == DLOCK_THIS_THREAD)\n", "    if (owner_id == DLOCK_THIS_THREAD || owner_id == 0)\n"),
        ("lock/owner.c", "hold->number = owner_id == DLOCK_THIS_THREAD ?", "hold->number = hold->named_by == 't' ?")],
     "watchdog"),
    ("an acquire adds to the count, also when it is sent again", [
        NAMES_AGAIN,
        ("lock/lua/notify_acquire.lua", "redis.call('HSET', KEYS[1], ARGV[1], ARGV[3])",
         "redis.call('HINCRBY', KEYS[1], ARGV[1], 1)"),
        ("lock/lua/notify_release.lua", "local left = ARGV[2] - 1\nif left == 0 then",
         "local left = redis.call('HINCRBY', KEYS[1], ARGV[1], -1)\nif left == 0 then")], "notify"),
    ("two calls of one owner count its holds at the same time", [
        ("lock/owner.c", "    while (!is_its_turn(", "    while (false && !is_its_turn(")],
     "reentrant"),

    ("the validity of an acquire counts from its reply", [
        ("lock/redis/round_trip.c", "    exchange->sent_ns = env->now_ns();\n    return ops->try_acquire(env, exchange->hold, exchange->busy);\n",
         "    dlock_status status = ops->try_acquire(env, exchange->hold, exchange->busy);\n"
         "    exchange->sent_ns = env->now_ns();\n    return status;\n")], "owner_lua"),
    ("writes that ride with a release are sent once more with its script in full", [
        ("lock/redis/call.c", "    env->last = NULL;\n", "")], "owner_lua"),
    ("a nested acquire with a shorter time to live shortens the key's", [
        ("lock/lua/reentrant_acquire.lua", "if free or redis.call('PTTL', KEYS[1]) < tonumber(ARGV[2]) then",
         "if true then")], "reentrant"),
    ("the descriptor that tells of a loss is not closed when the hold was lost", [
        ("lock/release.c", "    if (hold->lost_fd >= 0)\n", "    if (hold->lost_fd >= 0 && dlock_valid(hold))\n")],
     "reentrant"),
    ("a release that is sent again counts twice", [
        ("lock/lua/reentrant_release.lua", "local left = ARGV[2] - 1",
         "local left = redis.call('HGET', KEYS[1], ARGV[1]) - 1")], "watchdog"),
    ("a renewal that failed is not tried again", [
        ("lock/timekeeper.c", "    else\n        retry_at(timekeeper, hold, client->now_ns());\n",
         "    else if (!dlock_valid(hold))\n        retry_at(timekeeper, hold, client->now_ns());\n")], "watchdog"),
    ("a waiter that leaves without the lock lets nobody move up", [
        ("lock/wait.c", "    move_up(lock, acquired && release_will_wake(wait) ? wait->holds_ms : 0,\n",
         "    if (acquired)\n    move_up(lock, acquired && release_will_wake(wait) ? wait->holds_ms : 0,\n")],
     "notify"),
    ("a cancel ends one of the acquires that share it", [
        ("lock/loop.c", "    while ((wait = take_cancelled(loop, cancel)) != NULL) {", "    for (int i = 0; i < 1 && (wait = take_cancelled(loop, cancel)) != NULL; i++) {")], "notify"),
    ("a hold that is passed on keeps the token of the hold before it", [
        ("lock/handoff.c", "        grant_of(lock)->tokens++;\n", "")], "fair"),
    ("a waiter's leave that comes late lets go of what its client holds by now", [
        ("lock/lua/fair.lua", "    elseif owner == me and tonumber(last_try or 0) <= tonumber(try or 0) then",
         "    elseif owner == me then")], "fair"),
    ("the list of an owner's holds gets no time to live", [
        ("lock/lua/read_write.lua", "    keep(holds, ttl)\n", "")], "read_write"),

    ("a started call for several locks that fails does not release the first", [
        ("lock/acquire_many.c", "    m->releasing = 1;\n    for (size_t i = m->held; i-- > 0;) {",
         "    m->releasing = 1;\n    for (size_t i = m->held; i-- > 1;) {")], "watchdog"),
    ("a hold that was lost meanwhile counts as one of several", [
        ("lock/acquire_many.c", "if (!dlock_valid(m->", "if (m->held == 0 && !dlock_valid(m->")], "owner_lua"),
    ("a call for several locks names the missing one as if they were sorted", [
        ("lock/acquire_many.c", "    m->missing = lock->index;\n    snprintf",
         "    m->missing = (size_t)(lock - m->wanted);\n    snprintf")], "notify"),
    ("a call for several locks that fails does not release the first", [
        ("lock/acquire_many.c", "    for (size_t i = m->held; i-- > 0;) {\n        struct wanted_lock",
         "    for (size_t i = m->held; i-- > 1;) {\n        struct wanted_lock")], "owner_lua"),
    ("the locks of one call get each other's modes", [
        ("lock/acquire_many.c", ".mode = modes != NULL ? modes[i] : m->want.mode};",
         ".mode = modes != NULL ? modes[m->count - 1 - i] : m->want.mode};")], "read_write"),
    ("all locks of one call get the mode of the first", [
        ("lock/acquire_many.c", "want->mode = next->mode;", "want->mode = m->wanted[0].mode;")], "read_write"),
]
