-- KEYS[1] lock; ARGV[1] owner, ARGV[2] ttl in ms, ARGV[3] how many holds it has then. Returns nil: acquired, else what is left of the holder's ttl in ms.
local free = redis.call('EXISTS', KEYS[1]) == 0
if (free and ARGV[3] ~= '1') or (not free and redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0) then
    return redis.call('PTTL', KEYS[1])
end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[3])
local short = free or redis.call('PTTL', KEYS[1]) < tonumber(ARGV[2])
local given = short and redis.pcall('PEXPIRE', KEYS[1], ARGV[2])
if free and given ~= 1 then redis.call('HDEL', KEYS[1], ARGV[1]) end -- no lock without an end
return given ~= 1 and given or nil
