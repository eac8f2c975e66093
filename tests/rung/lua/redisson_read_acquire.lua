-- KEYS[1] lock, KEYS[2] the owner's time-outs; ARGV[1] lease in ms, ARGV[2] owner, ARGV[3] the owner as a writer. Returns nil: acquired, else what is left of the lease in ms. A read lock's acquire in Redisson's layout.
local mode = redis.call('HGET', KEYS[1], 'mode')
if not mode then
    redis.call('HSET', KEYS[1], 'mode', 'read', ARGV[2], 1)
    redis.call('SET', KEYS[2] .. ':1', 1, 'PX', ARGV[1])
    redis.call('PEXPIRE', KEYS[1], ARGV[1])
    return nil
end
if mode == 'read' or redis.call('HEXISTS', KEYS[1], ARGV[3]) == 1 then
    local count = redis.call('HINCRBY', KEYS[1], ARGV[2], 1)
    redis.call('SET', KEYS[2] .. ':' .. count, 1, 'PX', ARGV[1])
    redis.call('PEXPIRE', KEYS[1], math.max(redis.call('PTTL', KEYS[1]), ARGV[1]))
    return nil
end
return redis.call('PTTL', KEYS[1])
