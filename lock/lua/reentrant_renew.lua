-- KEYS[1] lock; ARGV[1] owner, ARGV[2] ttl in ms. Returns 1: renewed, 0: not the holder.
if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 1 then
    return redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
return 0
