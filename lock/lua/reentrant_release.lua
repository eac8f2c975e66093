-- KEYS[1] lock; ARGV[1] owner, ARGV[2] how often it holds, as far as it knows. Returns nil: not the holder, else how often it still holds.
local held = redis.call('HGET', KEYS[1], ARGV[1])
if not held then
    return nil
end
local left = (ARGV[2] or held) - 1 -- not held - 1: it may be sent twice, or an earlier one never have come
if left == 0 then
    redis.call('DEL', KEYS[1])
else
    redis.call('HSET', KEYS[1], ARGV[1], left)
end
return left
