-- Picks a task that look.lua has found. ARGV[1] the task; ARGV[2] which list it is of; ARGV[3] the token, 0: none; ARGV[4] how
-- long the lease lasts in ms, 0: there are no leases, and the task leaves the list; ARGV[5] 'fenced': the token must be
-- the one that looked last. Without it, the script does not look again: that is the lock's business.
-- Returns 1: somebody else had the task, and that lease has ended; 0: nobody had it; -1: it is not picked, since it has a
-- result by now: who had it was late; or the errors LAID: the list was laid anew; STALE and the token that has looked since.
-- include parts/list.lua
local laid, newest = unpack(redis.call('HMGET', KEYS[4], 'laid', 'token'))
if laid ~= ARGV[2] then
    return redis.error_reply('LAID anew')
end
if ARGV[5] == 'fenced' and newest ~= ARGV[3] then
    return redis.error_reply('STALE ' .. (newest or '0'))
end
if redis.call('HEXISTS', KEYS[3], ARGV[1]) == 1 then
    return -1
end
local ended = tonumber(redis.call('ZSCORE', KEYS[1], ARGV[1]) or 0)
if ARGV[4] == '0' then
    redis.call('ZREM', KEYS[1], ARGV[1])
else
    redis.call('ZADD', KEYS[1], now + ARGV[4], ARGV[1])
end
redis.call('HSET', KEYS[2], ARGV[1], ARGV[3])
return ended > 0 and 1 or 0
