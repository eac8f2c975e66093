-- KEYS[1] lock, KEYS[2] its newest token; ARGV[1] owner, ARGV[2] ttl in ms, ARGV[3] the token's ttl in ms. Returns {1, token}: acquired, else {0, what is left of the holder's ttl in ms}.
if redis.call('EXISTS', KEYS[1]) == 0 or redis.call('HEXISTS', KEYS[1], ARGV[1]) == 1 then
    local now = redis.call('TIME')
    local token = math.max((redis.call('GET', KEYS[2]) or 0) + 1, now[1] * 1000000 + now[2])
    redis.call('HINCRBY', KEYS[1], ARGV[1], 1)
    redis.call('PEXPIRE', KEYS[1], ARGV[2])
    redis.call('SET', KEYS[2], string.format('%.0f', token), 'PX', ARGV[3])
    return {1, token}
end
return {0, redis.call('PTTL', KEYS[1])}
