-- KEYS[1] lock; ARGV[1] owner. Returns nil: not the holder, else how often it still holds.
if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then
    return nil
end
local count = redis.call('HINCRBY', KEYS[1], ARGV[1], -1)
if count == 0 then
    redis.call('DEL', KEYS[1])
end
return count
