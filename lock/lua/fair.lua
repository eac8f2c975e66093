-- KEYS[1] lock, KEYS[2] queue, KEYS[3] newest token, KEYS[4] grant; ARGV[1] what to do, ARGV[2] client,
-- ARGV[3] ttl in ms, ARGV[4] ttl of a grant to it in ms, ARGV[5] token (release, renew), ARGV[6] 1: more of the
-- client's wait (release), ARGV[7] number of the client's try (acquire; leave: of the
-- last one that had no answer, or 0), ARGV[8] the last number that it used
-- of its token's thousand (acquire, release; all of them, if left out).
-- Returns acquire: {1, token, expired} had, {0, what is left of the lock in ms, expired} not;
-- release: {1, 0, expired} let go, {2, token, expired} kept for more, {0, 0, expired} it was not mine;
-- leave: {1, 0, expired} what I had was let go, {0, 0, expired} there was none; renew: {1} or {0};
-- break, whoever has it: {type of the key, owner, what was left of it in ms}.
-- expired is 1 when a grant was found that had run out unclaimed. Which step is for what: docs/design/fair.md.
local lock, queue, newest, grant = unpack(KEYS)
local what, me, ttl_ms, grant_ms, mine, more, try, used = unpack(ARGV)
local owner, token, state, last_try, before = unpack(redis.call('HMGET', lock, 'owner', 'token', 'state', 'try', 'before'))
local expired = 0
local DAY_MS = 86400000
local place = me .. ' ' .. grant_ms -- in the queue: whoever grants me the lock grants it for my grant_ms
if not owner and redis.call('EXISTS', lock) == 1 then
    owner = '?' -- somebody's, under another rung
end

-- A key without an end is taken back where none may be set.
local function expire(key, ms)
    local given = redis.pcall('PEXPIRE', key, ms)
    if type(given) == 'table' then
        if redis.call('PTTL', key) == -1 then
            redis.call('DEL', key)
        end
        error(given)
    end
end

-- The last number that may have been used of the newest token's, when I have the lock.
local function used_by_me()
    return math.max(token, used or token + 999)
end

-- The same when nobody has it. The note is left by a grant and by who lets go.
local function used_by_who_had_it()
    local first = tonumber(redis.call('GET', newest) or 0)
    local note = redis.call('GETDEL', grant)
    if note == 'granted' then
        expired = 1
        return first
    end
    return tonumber(note) or first + 999
end

-- Above all earlier tokens; the clock keeps it so when `newest` is lost. (A SET with GET is an error where the key is
-- of another type, and changes nothing.)
local function give(client, how, for_ms, last)
    local time = redis.call('TIME')
    token = string.format('%.0f', math.max(last + 1, time[1] * 1000000 + time[2]))
    redis.call('SET', newest, token, 'PX', DAY_MS, 'GET')
    redis.call('HSET', lock, 'owner', client, 'token', token, 'state', how,
        'try', how == 'held' and (what == 'acquire' and try or last_try) or 0,
        'before', how == 'held' and what == 'release' and mine or 0)
    expire(lock, for_ms)
    return tonumber(token)
end

-- False: nobody waits.
local function grant_to_head(last)
    local head = redis.call('LPOP', queue)
    if head then
        local client, for_ms = head:match('^(.*) (%d+)$')
        redis.call('SET', grant, 'granted', 'PX', 10 * for_ms, 'GET')
        give(client, 'granted', for_ms, last)
        local wake = 'dlock:wake:' .. client
        if tonumber(redis.pcall('RPUSH', wake, lock)) then -- a hint: without it the head polls
            pcall(expire, wake, for_ms)
        end
    end
    return head
end

local function grant_if_free()
    if not owner and redis.call('EXISTS', queue) == 1 then
        grant_to_head(used_by_who_had_it())
    end
end

local function let_go(last)
    if not grant_to_head(last) then
        redis.call('SET', grant, string.format('%.0f', last), 'PX', 10 * grant_ms, 'GET')
        redis.call('DEL', lock)
    end
end

local function line_up()
    local alone = not redis.call('LPOS', queue, place) and redis.call('RPUSH', queue, place) == 1
    if alone or redis.call('PTTL', queue) < 10 * grant_ms then -- others may need it for longer
        expire(queue, 10 * grant_ms)
    end
end

if what == 'acquire' then
    if owner == me and state == 'granted' then
        redis.call('GETDEL', grant)
        redis.call('HSET', lock, 'state', 'held', 'try', try)
        expire(lock, ttl_ms)
        return {1, tonumber(token), 0}
    elseif owner == me and tonumber(try) <= tonumber(last_try or 0) then -- it comes late
        return {0, redis.call('PTTL', lock), 0}
    elseif owner == me then -- its answer was lost
        return {1, give(me, 'held', ttl_ms, used_by_me()), 0}
    elseif not owner then
        local head = redis.call('LINDEX', queue, 0)
        if not head or head == place then
            give(me, 'held', ttl_ms, used_by_who_had_it())
            if head then
                redis.call('LPOP', queue)
            end
            return {1, tonumber(token), expired}
        end
    end
    line_up()
    grant_if_free()
    return {0, redis.call('PTTL', lock), expired}
elseif what == 'release' then
    if owner == me and mine == before and mine ~= '0' then -- it was kept for more, and comes once more
        return {2, tonumber(token), 0}
    end
    if owner ~= me or token ~= mine then
        grant_if_free()
        return {0, 0, expired}
    end
    if more == '1' and redis.call('EXISTS', queue) == 0 then
        return {2, give(me, 'held', ttl_ms, used_by_me()), 0}
    end
    let_go(used_by_me())
    if more == '1' then
        line_up()
    end
    return {1, 0, 0}
elseif what == 'leave' then
    redis.call('LREM', queue, 0, place)
    if owner == me and state == 'granted' then
        let_go(tonumber(token))
        return {1, 0, 0}
    elseif owner == me and tonumber(last_try or 0) <= tonumber(try or 0) then -- nobody was told that it is held
        let_go(used_by_me())
        return {1, 0, 0}
    end
    grant_if_free()
    return {0, 0, expired}
elseif what == 'renew' then
    if owner ~= me or token ~= mine then
        return {0}
    end
    if not redis.pcall('GETEX', newest, 'PX', DAY_MS) then
        redis.call('SET', newest, token, 'PX', DAY_MS)
    end
    if redis.call('PTTL', lock) < tonumber(ttl_ms) then
        redis.call('PEXPIRE', lock, ttl_ms)
    end
    return {1}
elseif what == 'break' then
    local type = redis.call('TYPE', lock).ok
    if owner and not token then
        type = type .. ' of another rung'
    end
    local broken = {type, owner or '', redis.call('PTTL', lock)}
    if token then
        let_go(token + 999)
    end
    return broken
end
return redis.error_reply("ERR ARGV[1] is '" .. what .. "': it must be acquire, release, leave, renew or break")
