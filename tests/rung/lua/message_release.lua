-- KEYS[1] lock; ARGV[1] hold, ARGV[2] channel. Returns 1: it was that hold's and is deleted, 0: it was not.
if redis.call('GET', KEYS[1]) ~= ARGV[1] then
    return 0
end
redis.call('DEL', KEYS[1])
redis.call('PUBLISH', ARGV[2], 'free')
return 1
