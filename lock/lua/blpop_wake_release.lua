-- KEYS[1] lock, KEYS[2] signals; ARGV[1] owner. Returns nil: not the holder, else how often it still holds. A lock that is freed leaves its name there, once.
if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then return nil end
local count = redis.call('HINCRBY', KEYS[1], ARGV[1], -1)
if count == 0 then
    redis.call('DEL', KEYS[1])
    redis.call('LREM', KEYS[2], 0, KEYS[1])
    redis.call('RPUSH', KEYS[2], KEYS[1])
end
return count
