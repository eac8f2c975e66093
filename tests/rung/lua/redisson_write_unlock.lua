-- KEYS[1] lock, KEYS[2] channel, KEYS[3] latch; ARGV[1] message, ARGV[2] lease in ms, ARGV[3] the owner as a writer, ARGV[4] PUBLISH or SPUBLISH, ARGV[5] the latch's ttl in ms. Returns nil: not the writer, 0: it still writes, 1: it does not. A write lock's unlock in Redisson's layout.
local function answer(value)
    redis.call('SET', KEYS[3], value, 'PX', ARGV[5])
    return value
end
local before = redis.call('GET', KEYS[3])
if before then
    return tonumber(before)
end
local mode = redis.call('HGET', KEYS[1], 'mode')
if not mode then
    redis.call(ARGV[4], KEYS[2], ARGV[1])
    answer(1)
    return nil
end
if mode ~= 'write' or redis.call('HEXISTS', KEYS[1], ARGV[3]) == 0 then
    return nil
end
if redis.call('HINCRBY', KEYS[1], ARGV[3], -1) > 0 then
    redis.call('PEXPIRE', KEYS[1], ARGV[2])
    return answer(0)
end
redis.call('HDEL', KEYS[1], ARGV[3])
if redis.call('HLEN', KEYS[1]) == 1 then
    redis.call('DEL', KEYS[1])
    redis.call(ARGV[4], KEYS[2], ARGV[1])
else
    redis.call('HSET', KEYS[1], 'mode', 'read')
end
return answer(1)
