-- Picks a task that look.lua has found. ARGV[1] the task; ARGV[2] which list it is of; ARGV[3] the token, 0: none; ARGV[4] how
-- long the lease lasts in ms, 0: there are no leases, and the task leaves the list; ARGV[5] 'fenced': the token must be
-- the one that looked last.
-- Returns 1: another worker's lease of it had ended; 0: it was free; -1: it has a result, so it is not picked. Without
-- 'fenced' only the lock keeps two picks apart. Or the errors LAID: the list was laid anew; STALE and the token that has
-- looked since.
-- include parts/list.lua
local laid, newest = unpack(redis.call('HMGET', KEYS[4], 'laid', 'token'))
if laid ~= ARGV[2] then
    return redis.error_reply('LAID anew')
end
local refused = ARGV[5] == 'fenced' and refuse_token(KEYS[4], newest)
if refused then
    return refused
end
if ARGV[5] == 'fenced' and newest ~= ARGV[3] then
    return redis.error_reply('STALE ' .. (newest or '0'))
end
if redis.call('HEXISTS', KEYS[3], ARGV[1]) == 1 then
    redis.call('ZREM', KEYS[1], ARGV[1]) -- else the next look finds it again
    return -1
end
local ended = tonumber(redis.call('ZSCORE', KEYS[1], ARGV[1]) or 0)
-- Redis undoes nothing of a script that it refuses half-way. So each command whose right may be missing is sent first in a
-- form that changes nothing.
if ARGV[4] == '0' then
    redis.call('ZREM', KEYS[1], 'none')
else
    redis.call('ZADD', KEYS[1], 'XX', 0, 'none')
end
redis.call('HSET', KEYS[2], ARGV[1], ARGV[3])
if ARGV[4] == '0' then
    redis.call('ZREM', KEYS[1], ARGV[1])
else
    redis.call('ZADD', KEYS[1], now + ARGV[4], ARGV[1])
end
return ended > 0 and ended <= now and 1 or 0
