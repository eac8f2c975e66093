-- KEYS[1] lock, KEYS[2] wait queue, KEYS[3] newest token, KEYS[4] grant note.
-- ARGV[1] operation: acquire, release, leave, renew or break. ARGV[2] client, called "me" below.
-- ARGV[3] ttl in ms. ARGV[4] ttl of a grant to this client in ms.
-- ARGV[5] token of the hold (release, renew). ARGV[6] 1: this client has more waiters (release).
-- ARGV[7] number of this client's attempt (acquire), or of its last one without an answer, or 0 (leave).
-- ARGV[8] highest of its token's thousand numbers that was used (acquire, release). Left out: all may have been.
-- Returns
--   acquire: {1, token, expired} acquired, or {0, the lock's remaining ttl in ms, expired} busy
--   release: {1, 0, expired} released, {2, token, expired} kept for this client's waiters, {0, 0, expired} not mine
--   leave:   {1, 0, expired} the client's hold or grant was released, {0, 0, expired} it had none
--   renew:   {1} renewed, or {0} not mine
--   break:   {type of the key, owner, remaining time in ms}; a lock of this rung is released for any holder
-- expired is 1 if this step found a grant that had expired unclaimed. The steps: docs/design/fair.md.
local lock, queue, newest, grant = unpack(KEYS)
local what, me, ttl_ms, grant_ms, mine, more, try, used = unpack(ARGV)
local owner, token, state, last_try, before = unpack(redis.call('HMGET', lock, 'owner', 'token', 'state', 'try', 'before'))
local expired = 0
local DAY_MS = 86400000
local place = me .. ' ' .. grant_ms -- my queue entry: a grant to me lasts for my grant_ms
if not owner and redis.call('EXISTS', lock) == 1 then
    owner = '?' -- another rung's lock, or an application's hash
end

-- No key is made without a ttl. If PEXPIRE were refused after the write, DEL might be refused as well.
-- So the script checks before it writes. Before Redis 7 it tries a PEXPIRE without a number, which changes nothing.
local function may_expire(key)
    local may = redis.acl_check_cmd
    return may and may('PEXPIRE', key, '1') or redis.pcall('PEXPIRE', key, '').err:find('not an integer')
end

local function must_expire(key)
    if not may_expire(key) then
        redis.call('PEXPIRE', key, '') -- raises the server's error
    end
end

-- The highest number that may have been used, when I have the lock.
local function used_by_me()
    return math.max(token, used or token + 999)
end

-- The same when the lock is free. The note was written by a grant, or by the release that freed the lock.
local function used_by_who_had_it()
    local first = tonumber(redis.call('GET', newest) or 0)
    local note = redis.call('GETDEL', grant)
    if note == 'granted' then
        expired = 1
        return first
    end
    return tonumber(note) or first + 999
end

-- The new token is higher than all earlier ones. If `newest` is lost, the clock keeps it so.
-- (SET with GET fails on a key of another type, and changes nothing.)
local function give(client, how, for_ms, last)
    local time = redis.call('TIME')
    token = string.format('%.0f', math.max(last + 1, time[1] * 1000000 + time[2]))
    redis.call('SET', newest, token, 'PX', DAY_MS, 'GET')
    redis.call('HSET', lock, 'owner', client, 'token', token, 'state', how,
        'try', how == 'held' and (what == 'acquire' and try or last_try) or 0,
        'before', how == 'held' and what == 'release' and mine or 0)
    redis.pcall('PEXPIRE', lock, for_ms) -- if it is refused, the key keeps its ttl
    return tonumber(token)
end

-- False: no client waits.
local function grant_to_head(last)
    local head = redis.call('LPOP', queue)
    if head then
        local client, for_ms = head:match('^(.*) (%d+)$')
        redis.call('SET', grant, 'granted', 'PX', 10 * for_ms, 'GET')
        give(client, 'granted', for_ms, last)
        local wake = 'dlock:wake:' .. client
        -- A hint: without it the head polls. Only the first hint on the list sets the list's ttl.
        -- So the list expires even if its client takes no hints.
        if may_expire(wake) and tonumber(redis.pcall('RPUSH', wake, lock)) == 1 then
            redis.call('PEXPIRE', wake, for_ms)
        end
    end
    return head
end

local function grant_if_free()
    if not owner and redis.call('EXISTS', queue) == 1 and may_expire(lock) then
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
    must_expire(queue)
    local alone = not redis.call('LPOS', queue, place) and redis.call('RPUSH', queue, place) == 1
    if alone or redis.call('PTTL', queue) < 10 * grant_ms then -- other clients may need a longer life: never shorten it
        redis.call('PEXPIRE', queue, 10 * grant_ms)
    end
end

if what == 'acquire' then
    must_expire(lock)
    if owner == me and state == 'granted' then
        redis.call('GETDEL', grant)
        redis.call('HSET', lock, 'state', 'held', 'try', try)
        redis.call('PEXPIRE', lock, ttl_ms)
        return {1, tonumber(token), 0}
    elseif owner == me and tonumber(try) <= tonumber(last_try or 0) then -- this request arrived late
        return {0, redis.call('PTTL', lock), 0}
    elseif owner == me then -- the answer to an earlier attempt was lost
        return {1, give(me, 'held', ttl_ms, used_by_me()), 0}
    elseif not owner then
        local head = redis.call('LINDEX', queue, 0)
        if not head or head == place then
            local last = used_by_who_had_it()
            if head then
                redis.call('LPOP', queue)
            end
            give(me, 'held', ttl_ms, last)
            return {1, tonumber(token), expired}
        end
    end
    line_up()
    grant_if_free()
    return {0, redis.call('PTTL', lock), expired}
elseif what == 'release' then
    if owner == me and mine == before and mine ~= '0' then -- this release kept the lock already, and arrives again
        redis.call('HSET', lock, 'before', mine) -- a write: WAIT asks the replicas about that only
        return {2, tonumber(token), 0}
    end
    if owner ~= me or token ~= mine then
        grant_if_free()
        return {0, 0, expired}
    end
    if more == '1' and redis.call('EXISTS', queue) == 0 and may_expire(lock) then
        return {2, give(me, 'held', ttl_ms, used_by_me()), 0}
    end
    let_go(used_by_me())
    if more == '1' then
        pcall(line_up) -- if it is refused, the lock is released all the same, and my waiters ask again
    end
    return {1, 0, 0}
elseif what == 'leave' then
    redis.call('LREM', queue, 0, place)
    if owner == me and state == 'granted' then
        let_go(tonumber(token))
        return {1, 0, 0}
    elseif owner == me and tonumber(last_try or 0) <= tonumber(try or 0) then -- the answer was lost: no waiter knows that it holds the lock
        let_go(used_by_me())
        return {1, 0, 0}
    end
    grant_if_free()
    return {0, 0, expired}
elseif what == 'renew' then
    if owner ~= me or token ~= mine then
        return {0}
    end
    redis.pcall('GETEX', newest, 'PX', DAY_MS) -- never made again: a fence may have excluded some of my numbers
    if redis.call('PTTL', lock) < tonumber(ttl_ms) then
        redis.call('PEXPIRE', lock, ttl_ms)
    end
    return {1}
elseif what == 'break' then
    local type = redis.call('TYPE', lock).ok
    if owner and not token then
        type = type .. ' of another rung'
    end
    local broken = {type, (owner or ''):sub(1, 128), redis.call('PTTL', lock)}
    if token then
        let_go(token + 999)
    end
    return broken
end
return redis.error_reply("ERR ARGV[1] is '" .. what .. "': it must be acquire, release, leave, renew or break")
