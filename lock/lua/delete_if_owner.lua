-- KEYS[1] lock; ARGV[1] hold. Returns 1: it was that hold's and is deleted, 0: it was not.
if redis.call('GET', KEYS[1]) == ARGV[1] then
    return redis.call('DEL', KEYS[1])
end
return 0
