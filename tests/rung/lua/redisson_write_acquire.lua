-- KEYS[1] lock; ARGV[1] lease in ms, ARGV[2] the owner as a writer. Returns nil: acquired, else what is left of the lease in ms. A write lock's acquire in Redisson's layout.
local mode = redis.call('HGET', KEYS[1], 'mode')
if not mode then
    redis.call('HSET', KEYS[1], 'mode', 'write', ARGV[2], 1)
    redis.call('PEXPIRE', KEYS[1], ARGV[1])
    return nil
end
if mode == 'write' and redis.call('HEXISTS', KEYS[1], ARGV[2]) == 1 then
    redis.call('HINCRBY', KEYS[1], ARGV[2], 1)
    redis.call('PEXPIRE', KEYS[1], redis.call('PTTL', KEYS[1]) + ARGV[1])
    return nil
end
return redis.call('PTTL', KEYS[1])
