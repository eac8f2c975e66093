-- KEYS[1] the stock's epoch: a hash of its number and of what it stands for.
-- ARGV[1] the epoch to raise, '' if there is none; ARGV[2] an epoch that the new one must exceed.
-- ARGV[3] rung, ARGV[4] engine, ARGV[5] servers, ARGV[6] identity of the lock that the new epoch stands for.
-- Raises the epoch only if it is ARGV[1]. Returns epoch, rung, engine, servers and identity as they are after that,
-- and 1 if this raised it.
-- The clock keeps numbers growing after the key is lost.
local epoch = redis.call('HGET', KEYS[1], 'epoch') or ''
local raised = epoch == ARGV[1]
if raised then
    local time = redis.call('TIME')
    local above = math.max(tonumber(epoch) or 0, tonumber(ARGV[2]))
    epoch = string.format('%.0f', math.max(above + 1, time[1] * 1000000 + time[2]))
    redis.call('HSET', KEYS[1], 'epoch', epoch, 'rung', ARGV[3], 'engine', ARGV[4], 'servers', ARGV[5], 'identity', ARGV[6])
end
local now = redis.call('HMGET', KEYS[1], 'epoch', 'rung', 'engine', 'servers', 'identity')
now[6] = raised and 1 or 0
return now
