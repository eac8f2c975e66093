-- KEYS[1] lock, KEYS[2] channel, KEYS[3] latch; ARGV[1] message, ARGV[2] lease in ms, ARGV[3] owner, ARGV[4] PUBLISH or SPUBLISH, ARGV[5] the latch's ttl in ms. Returns nil: not the owner, 0: it still holds, 1: freed. A lock's unlock in Redisson's layout.
local before = redis.call('GET', KEYS[3])
if before then
    return tonumber(before)
end
if redis.call('HEXISTS', KEYS[1], ARGV[3]) == 0 then
    return nil
end
if redis.call('HINCRBY', KEYS[1], ARGV[3], -1) > 0 then
    redis.call('PEXPIRE', KEYS[1], ARGV[2])
    redis.call('SET', KEYS[3], 0, 'PX', ARGV[5])
    return 0
end
redis.call('DEL', KEYS[1])
redis.call(ARGV[4], KEYS[2], ARGV[1])
redis.call('SET', KEYS[3], 1, 'PX', ARGV[5])
return 1
