-- KEYS[1] lock; ARGV[1] hold, ARGV[2] ttl in ms. Returns 1: this hold has the lock, which lives at least that long; 0: it has not.
if redis.call('GET', KEYS[1]) ~= ARGV[1] then
    return 0
end
redis.call('PEXPIRE', KEYS[1], math.max(ARGV[2], redis.call('PTTL', KEYS[1]))) -- a longer life is not shortened
return 1
