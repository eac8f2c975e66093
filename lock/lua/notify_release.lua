-- KEYS[1] lock, KEYS[2] the channel that its waiters listen to; ARGV[1] owner, ARGV[2] how many holds it has, this one included. Returns nil: not the holder, else how many it still has.
if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then return nil end
local left = ARGV[2] - 1
if left == 0 then
    redis.call('DEL', KEYS[1])
    redis.pcall('PUBLISH', KEYS[2], '0') -- where it is refused, they poll
else
    redis.call('HSET', KEYS[1], ARGV[1], left)
end
return left
