#!lua flags=allow-oom
-- SPDX-License-Identifier: Apache-2.0
-- KEYS[1] lock, KEYS[2] holds, KEYS[3] waiting readers, KEYS[4] waiting writers,
-- KEYS[5] invited readers, KEYS[6] newest token, KEYS[7] the channel of its waiters.
-- ARGV[1] operation: acquire, renew, release, give_up or break. ARGV[2] owner.
-- ARGV[3] hold, as "r7" or "w7". ARGV[4] its ttl in ms.
-- ARGV[5] "nested" if the owner has another hold, else "alone" (acquire, release).
-- ARGV[6] the client's grant_ms.
-- Returns
--   acquire: above 0, a token: acquired
--            below 0, -ms: busy, ask again after that time
--            {ms}: the same, and this user may not PUBLISH, so poll: perhaps no message comes
--            0: it was to nest, and its owner no longer holds the lock
--            nil: the owner reads and asks to write (an upgrade)
--   renew, release, give_up: 1, or 0: it was not held
--   break:   {type of the key, owner, remaining time in ms}; the lock is released for any holder
-- The steps: docs/design/read_write.md.
-- allow-oom: renewals and releases write a few bytes, and must work when the server is out of memory.
local lock, holds, readers, writers, invited, newest, free = unpack(KEYS)
local what, owner, hold, ttl, nested, grant = unpack(ARGV)
ttl, grant = tonumber(ttl), tonumber(grant)
local call = redis.call
local time = call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
-- This waiter's mark: its client, its hold and its client's grant_ms. It has no owner's name:
-- a waiter that nests takes the name of the hold it nests in, and keeps its hold's number.
local me = owner:match('[^:]*') .. ' ' .. hold .. ' ' .. grant
local writing = hold:sub(1, 1) == 'w'
local ASK_AGAIN_MS = 5000           -- no waiter asks later than that
local DAY_MS = 86400000

-- An owner that is only in the hash holds nothing. So it may stay there if HDEL is refused.
local function remove(who)
    call('ZREM', lock, who)
    redis.pcall('HDEL', holds, who)
end

-- Removes expired owners. The zset says which owners hold the lock, and the hash says how.
-- A member that is not in the hash may be an application's: it stays.
-- While one is there, nobody enters: so a foreign zset, which may be large, is not walked.
local SWEEP = 100
local removed
repeat
    removed = 0
    for _, gone in ipairs(call('ZRANGEBYSCORE', lock, '-inf', now, 'LIMIT', 0, SWEEP)) do
        if call('HEXISTS', holds, gone) == 1 then
            remove(gone)
            removed = removed + 1
        end
    end
until removed < SWEEP
local mine = call('ZSCORE', lock, owner) and call('HGET', holds, owner) -- " w7 r8 "
local at = mine and mine:find(' ' .. hold .. ' ', 1, true)

-- No key is made without a ttl. If PEXPIRE were refused after the write, DEL might be refused as well.
-- So the script checks before it writes.
local function must_expire(key)
    if not redis.acl_check_cmd('PTTL', key) then
        call('PTTL', key) -- raises the server's error
    end
    if not redis.acl_check_cmd('PEXPIRE', key, '1') then
        call('PEXPIRE', key, '') -- raises the server's error
    end
end

local function keep(key, ms)
    if call('PTTL', key) < ms then
        call('PEXPIRE', key, ms)
    end
end

local function set_holds(list)
    if list == ' ' then
        remove(owner)
    else
        call('HSET', holds, owner, list)
    end
end

local function full_time()
    keep(holds, ttl)
    call('ZADD', lock, 'GT', now + ttl, owner)
    keep(lock, ttl)
end

local function draw_token()
    local token = math.max((call('GET', newest) or 0) + 1, time[1] * 1000000 + time[2])
    call('SET', newest, string.format('%.0f', token), 'PX', DAY_MS)
    return token
end

-- The holder that expires first, and its remaining time in ms.
-- A member that is not in the hash counts for as long as the key exists; below 0: no ttl.
local function holder()
    local one, over = unpack(call('ZRANGE', lock, 0, 0, 'WITHSCORES'))
    local left = one and over - now
    return one, left and left <= 0 and call('PTTL', lock) or left
end

local function somebody_writes()
    local one, left = holder()
    local list = one and (call('HGET', holds, one) or 'w')
    return list and list:find('w', 1, true) and left
end

-- The remaining time of the last mark that has not expired, or false: there is none.
local function waits(marks)
    local last = call('ZRANGE', marks, -1, -1, 'WITHSCORES')[2]
    return last and last - now > 0 and last - now
end

local function kept_out()
    if mine then
        return false
    end
    if writing then
        local _, left = holder()
        local turn = call('PTTL', invited)
        return left or turn >= 0 and turn
    end
    local left = somebody_writes()
    if left or call('ZREM', invited, me) == 1 then
        return left
    end
    return waits(writers)
end

local function wait(left)
    local marks = writing and writers or readers
    must_expire(marks)
    local again = left < 0 and ASK_AGAIN_MS or math.min(left + 2, ASK_AGAIN_MS)
    call('ZREMRANGEBYSCORE', marks, '-inf', now)
    call('ZADD', marks, now + again + grant, me)
    keep(marks, again + grant)
    local known, may_publish = pcall(redis.acl_check_cmd, 'PUBLISH', free, '0')
    return known and not may_publish and {again} or -again
end

local function acquire()
    if not mine and nested == 'nested' then
        return 0
    end
    if mine and writing and not mine:find('w', 1, true) then
        return false
    end
    local left = kept_out()
    if left then
        return wait(left)
    end
    must_expire(lock)
    must_expire(holds)
    call('ZREM', writing and writers or readers, me)
    if mine and not writing then
        call('ZREM', invited, me) -- it waited, was invited, and nests now
    end
    local token = draw_token()
    if not at then
        set_holds((mine or ' ') .. hold .. ' ')
    end
    full_time() -- last: if a command before it fails (a key of another type), nothing is held
    return token
end

-- "r" wakes all waiting readers. "r302" does too, and makes one writer of each client ask again in
-- 302 ms. "0" wakes one writer of each client.
local function tell(whom)
    call('PUBLISH', free, whom)
end

-- The longest grant_ms of the invited readers, of a thousand at most: that long, no writer enters.
local function longest_grant()
    local longest = 0
    for _, reader in ipairs(call('ZRANGE', invited, 0, 999)) do
        longest = math.max(longest, tonumber(reader:match('%d+$')) or 0)
    end
    return longest
end

-- Wakes the waiters that may enter now. After a write these are the waiting readers, before any writer.
-- A writer is woken when nobody holds the lock, even while invited readers are awaited:
-- it asks, and learns for how long. Callers use pcall: the hold is released by then, so an error here
-- must not fail the release. A waiter that is not woken asks again by itself.
local function wake(wrote)
    if somebody_writes() then
        return
    end
    if wrote and waits(readers) then
        call('ZREMRANGEBYSCORE', readers, '-inf', now)
        if call('RENAMENX', readers, invited) == 0 then
            call('ZCARD', invited) -- fails if the key is of another type
            call('RENAME', readers, invited)
        end
        local turn = longest_grant()
        call('PEXPIRE', invited, turn)
        tell('r' .. turn + 2)
    elseif waits(writers) then
        if not holder() then
            tell('0')
        end
    elseif waits(readers) then
        tell('r')
    end
end

local function leave()
    local rest = mine
    if mine and nested == 'alone' then
        rest = ' ' -- other numbers are from late acquires: nobody will release them
    elseif at then
        rest = mine:sub(1, at) .. mine:sub(at + #hold + 2)
    end
    if rest ~= mine then
        set_holds(rest)
    end
    local wrote = mine and mine:find('w', 1, true) and not rest:find('w', 1, true)
    if wrote or rest == ' ' or what == 'give_up' then
        pcall(wake, wrote)
    end
    -- A nested hold that is gone although its owner is there was released before; that reply was lost.
    return (at or mine and nested == 'nested') and 1 or 0
end

-- Removes all holders. Returns what inspect.lua would have returned just before.
local function break_open()
    local last, over = unpack(call('ZRANGE', lock, -1, -1, 'WITHSCORES'))
    local left = last and call('PTTL', lock) or 0
    if left > 0 then
        left = math.max(over - now, 0)
    end
    call('HLEN', holds) -- fails if the key is of another type
    if left ~= 0 then
        call('DEL', lock, holds)
        pcall(wake, true)
    end
    return {last and 'zset' or 'none', (left ~= 0 and last or ''):sub(1, 128), left}
end

if what == 'acquire' then
    return acquire()
elseif what == 'renew' then
    if at then
        full_time()
        redis.pcall('GETEX', newest, 'PX', DAY_MS)
    end
    return at and 1 or 0
elseif what == 'release' then
    return leave()
elseif what == 'give_up' then
    for _, marks in ipairs({readers, writers, invited}) do
        call('ZREM', marks, me)
    end
    return leave()
elseif what == 'break' then
    return break_open()
end
return redis.error_reply("ERR ARGV[1] is '" .. what ..
                         "': it must be acquire, renew, release, give_up or break")
