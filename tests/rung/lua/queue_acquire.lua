-- KEYS[1] lock, KEYS[2] queue; ARGV[1] hold, ARGV[2] ttl in ms. Returns 1: had, by hand or because nobody was before it, 0: queued.
local owner = redis.call('GET', KEYS[1])
local head = redis.call('LINDEX', KEYS[2], 0)
if owner == ARGV[1] or (not owner and (not head or head == ARGV[1])) then
    redis.call('LREM', KEYS[2], 0, ARGV[1])
    redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
    return 1
end
if not redis.call('LPOS', KEYS[2], ARGV[1]) then
    redis.call('RPUSH', KEYS[2], ARGV[1])
end
return 0
