-- KEYS[1] lock; ARGV[1] owner, ARGV[2] ttl in ms. Returns nil: not the holder, else 1: renewed.
if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then return nil end
redis.call('PEXPIRE', KEYS[1], math.max(ARGV[2], redis.call('PTTL', KEYS[1]))) -- a longer life is not shortened
return 1
