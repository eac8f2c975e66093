-- KEYS[1] lock; ARGV[1] owner, ARGV[2] ttl in ms, ARGV[3] its holds after this acquire. Returns nil: acquired, else the holder's remaining ttl in ms.
local free = redis.call('EXISTS', KEYS[1]) == 0
if (free and ARGV[3] ~= '1') or (not free and redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0) then
    return redis.call('PTTL', KEYS[1])
end
-- No lock without a ttl: a user that may not PEXPIRE is refused before anything is written. (Before Redis 7: by trying it.)
local may = redis.acl_check_cmd
if free and not (may and may('PEXPIRE', KEYS[1], ARGV[2])) then redis.call('PEXPIRE', KEYS[1], ARGV[2]) end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[3])
if free or redis.call('PTTL', KEYS[1]) < tonumber(ARGV[2]) then redis.call('PEXPIRE', KEYS[1], ARGV[2]) end
