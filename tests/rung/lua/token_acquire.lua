-- KEYS[1] lock, KEYS[2] the newest token; ARGV[1] hold, ARGV[2] ttl in ms. Returns the token, or nil: another holds it.
if not redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then
    return nil
end
return redis.call('INCR', KEYS[2])
