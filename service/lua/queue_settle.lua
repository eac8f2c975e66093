-- KEYS[1] record of the sale, KEYS[2] the item's queue, KEYS[3] pointer to the idempotency key.
-- ARGV[1] number of the entry, ARGV[2] consumer group, ARGV[3] record, ARGV[4] its ttl in ms.
-- The second step of a flawed demonstration: the stock was written before, in a command of its own. Returns 1; 0: the
-- entry is finished.
if #redis.call('XRANGE', KEYS[2], ARGV[1], ARGV[1]) == 0 then
    return 0
end
redis.call('SET', KEYS[1], ARGV[3], 'PX', ARGV[4])
local key = redis.call('GET', KEYS[3])
if key then
    redis.call('SET', KEYS[3], key, 'PX', ARGV[4])
end
redis.call('XACK', KEYS[2], ARGV[2], ARGV[1])
return redis.call('XDEL', KEYS[2], ARGV[1])
