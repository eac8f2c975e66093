-- KEYS[1] lock, KEYS[2] queue; ARGV[1] hold, ARGV[2] ttl in ms. Lets go of the lock, or of the place in the queue, and hands the lock to the next. Returns 1: it had the lock, 0: it had not.
redis.call('LREM', KEYS[2], 0, ARGV[1])
if redis.call('GET', KEYS[1]) ~= ARGV[1] then
    return 0
end
local head = redis.call('LPOP', KEYS[2])
if not head then
    redis.call('DEL', KEYS[1])
    return 1
end
redis.call('SET', KEYS[1], head, 'PX', ARGV[2])
redis.call('RPUSH', KEYS[1] .. ':wake:' .. head, 'go')
redis.call('PEXPIRE', KEYS[1] .. ':wake:' .. head, ARGV[2])
return 1
