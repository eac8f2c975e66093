-- KEYS[1] lock; ARGV[1] owner, ARGV[2] how many holds it has, this one included: it may arrive twice. Returns nil: not the holder, else how many it still has.
if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then return nil end
local left = ARGV[2] - 1
if left == 0 then redis.call('DEL', KEYS[1]) else redis.call('HSET', KEYS[1], ARGV[1], left) end
return left
