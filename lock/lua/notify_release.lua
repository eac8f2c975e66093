-- KEYS[1] lock, KEYS[2] the channel of its waiters; ARGV[1] owner, ARGV[2] its holds before this release.
-- Returns nil: not the holder, else its holds after it. May be carried out twice.
if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then return nil end
local left = ARGV[2] - 1
if left == 0 then
    redis.call('DEL', KEYS[1])
    redis.pcall('PUBLISH', KEYS[2], '0') -- if it is refused, waiters poll
else
    redis.call('HSET', KEYS[1], ARGV[1], left)
end
return left
