-- KEYS[1] lock; ARGV[1] owner, ARGV[2] how often it holds. Returns nil: not the holder, else how often it still holds.
if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then
    return nil
end
if ARGV[2] and redis.call('HGET', KEYS[1], ARGV[1]) ~= ARGV[2] then
    return ARGV[2] - 1 -- sent once more after a lost reply: it was done the first time
end
local count = redis.call('HINCRBY', KEYS[1], ARGV[1], -1)
if count == 0 then
    redis.call('DEL', KEYS[1])
end
return count
