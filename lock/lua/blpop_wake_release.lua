-- KEYS[1] lock, KEYS[2] its list of signals; ARGV[1] owner.
-- Returns nil: not the holder, else how many holds the owner still has.
-- A release that frees the lock leaves one signal on the list: the lock's name.
local count = tonumber(redis.call('HGET', KEYS[1], ARGV[1]))
if not count then return nil end
if count > 1 then return redis.call('HINCRBY', KEYS[1], ARGV[1], -1) end
redis.call('LREM', KEYS[2], 0, KEYS[1])
redis.call('RPUSH', KEYS[2], KEYS[1])
redis.call('DEL', KEYS[1])
return 0
