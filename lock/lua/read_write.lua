#!lua flags=allow-oom
-- SPDX-License-Identifier: Apache-2.0
-- KEYS[1] lock, KEYS[2] holds, KEYS[3] waiting readers, KEYS[4] waiting writers, KEYS[5] invited
-- readers, KEYS[6] newest token, KEYS[7] the channel that its waiters listen to; ARGV[1] what to do,
-- ARGV[2] owner, ARGV[3] hold, as "r7" or "w7", ARGV[4] its ttl in ms, ARGV[5] "nested" if its owner
-- has another, else "alone" (acquire, release), ARGV[6] its client's grant_ms.
-- Returns acquire: its token; or below 0: kept out, ask again after so many ms, or {so many}: and its
-- user may not tell others, so perhaps nobody tells it; or 0: nested, and the owner has no other any
-- more; or nil: the owner reads and asks to write; renew, release, give_up: 1, or 0: it was not held;
-- break, whoever has it: {type of the key, owner, what was left of it in ms}.
-- Which step is for what: docs/design/read_write.md. The first line: what is held is renewed and
-- released by writes of a few bytes, also on a server that is out of memory.
local lock, holds, readers, writers, invited, newest, free = unpack(KEYS)
local what, owner, hold, ttl, nested, grant = unpack(ARGV)
ttl, grant = tonumber(ttl), tonumber(grant)
local call = redis.call
local time = call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
-- As a waiter. It may come to nest, under another name of its owner's: the hold's number stays.
local me = owner:match('[^:]*') .. ' ' .. hold .. ' ' .. grant
local writing = hold:sub(1, 1) == 'w'
local ASK_AGAIN_MS = 5000           -- at the latest
local DAY_MS = 86400000

-- Whose time is over holds nothing. What is left in the zset is the truth, the hash says how. Whom
-- the hash does not know may be an application's: it stays.
for _, gone in ipairs(call('ZRANGEBYSCORE', lock, '-inf', now)) do
    if call('HDEL', holds, gone) == 1 then
        call('ZREM', lock, gone)
    end
end
local mine = call('ZSCORE', lock, owner) and call('HGET', holds, owner) -- " w7 r8 "
local at = mine and mine:find(' ' .. hold .. ' ', 1, true)

-- A key without an end is taken back where none may be set.
local function keep(key, ms)
    local given = call('PTTL', key) >= ms or redis.pcall('PEXPIRE', key, ms)
    if type(given) == 'table' then
        if call('PTTL', key) == -1 then
            call('DEL', key)
        end
        error(given)
    end
end

local function set_holds(list)
    if list == ' ' then
        call('ZREM', lock, owner)
        call('HDEL', holds, owner)
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

-- The first to be over of those who hold, with its time left: whom the hash does not know is there as
-- long as the key is, and below 0 is without an end.
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

-- For how long somebody waits whose mark counts.
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
    local again = left < 0 and ASK_AGAIN_MS or math.min(left + 2, ASK_AGAIN_MS)
    call('ZREMRANGEBYSCORE', marks, '-inf', now)
    call('ZADD', marks, now + again + grant, me)
    keep(marks, again + grant)
    local known, may_tell = pcall(redis.acl_check_cmd, 'PUBLISH', free, '0')
    return known and not may_tell and {again} or -again
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
    call('ZREM', writing and writers or readers, me)
    if mine and not writing then
        call('ZREM', invited, me) -- it has waited, and nests
    end
    local token = draw_token()
    if not at then
        set_holds((mine or ' ') .. hold .. ' ')
    end
    full_time() -- last: an error before it, as of a key of another type, leaves nothing held
    return token
end

-- "r" wakes the readers that wait; with "r302" one of each client's writers looks in 302 ms, too;
-- "0" wakes one of each client's writers.
local function tell(whom)
    call('PUBLISH', free, whom)
end

-- For as long as one of the invited may take to come.
local function longest_grant()
    local longest = 0
    for _, reader in ipairs(call('ZRANGE', invited, 0, -1)) do
        longest = math.max(longest, tonumber(reader:match('%d+$')) or 0)
    end
    return longest
end

-- Tells those who may come in now: after a write the readers that wait, ahead of any writer. A
-- writer is told when nobody holds, also while readers are awaited: it asks until when. It is called
-- by pcall: the hold has been let go by then, whatever is refused here; who is not told asks again.
local function wake(wrote)
    if somebody_writes() then
        return
    end
    if wrote and waits(readers) then
        call('ZREMRANGEBYSCORE', readers, '-inf', now)
        if call('RENAMENX', readers, invited) == 0 then
            call('ZCARD', invited) -- an error, where it is of another type
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
        rest = ' ' -- what is left of one that is alone came late: nobody will release it
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
    -- A nested one that is gone while its owner is there was let go before, and its reply was lost.
    return (at or mine and nested == 'nested') and 1 or 0
end

-- Whoever holds it is out. What inspect.lua would have said is returned.
local function break_open()
    local last, over = unpack(call('ZRANGE', lock, -1, -1, 'WITHSCORES'))
    local left = last and call('PTTL', lock) or 0
    if left > 0 then
        left = math.max(over - now, 0)
    end
    call('HLEN', holds) -- an error, where it is of another type
    if left ~= 0 then
        call('DEL', lock, holds)
        pcall(wake, true)
    end
    return {last and 'zset' or 'none', left ~= 0 and last or '', left}
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
