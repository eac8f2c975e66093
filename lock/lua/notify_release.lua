-- KEYS[1] lock, KEYS[2] channel, KEYS[3] latch, KEYS[4] a latch that is not needed any more; ARGV[1] owner, ARGV[2] ttl in ms, ARGV[3] the latch's ttl in ms. Returns nil: not the holder, 0: it still holds, 1: freed; sent again, the same as before.
local answered = redis.call('GET', KEYS[3])
if answered then
    return tonumber(answered)
end
redis.call('DEL', KEYS[4])
if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then
    return nil
end
local freed = 0
if redis.call('HINCRBY', KEYS[1], ARGV[1], -1) > 0 then
    redis.call('PEXPIRE', KEYS[1], ARGV[2])
else
    redis.call('DEL', KEYS[1])
    redis.call('PUBLISH', KEYS[2], '0')
    freed = 1
end
redis.call('SET', KEYS[3], freed, 'PX', ARGV[3])
return freed
