-- KEYS[1] lock; ARGV[1] hold. Returns 1: this hold had the lock, and the key is deleted; 0: it did not.
if redis.call('GET', KEYS[1]) == ARGV[1] then
    return redis.call('DEL', KEYS[1])
end
return 0
