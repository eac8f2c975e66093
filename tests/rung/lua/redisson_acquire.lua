-- KEYS[1] lock; ARGV[1] lease in ms, ARGV[2] owner. Returns nil: acquired, else what is left of the lease in ms. A lock's acquire in Redisson's layout.
if redis.call('EXISTS', KEYS[1]) == 1 and redis.call('HEXISTS', KEYS[1], ARGV[2]) == 0 then
    return redis.call('PTTL', KEYS[1])
end
redis.call('HINCRBY', KEYS[1], ARGV[2], 1)
redis.call('PEXPIRE', KEYS[1], ARGV[1])
return nil
