-- KEYS[1] lock, KEYS[2] its newest token; ARGV[1] owner, ARGV[2] ttl in ms,
-- ARGV[3] how many holds the owner has after this acquire, ARGV[4] the token key's ttl in ms.
-- Returns {1, token}: acquired, else {0, the holder's remaining ttl in ms}.
-- A third element, 1: this user may not PUBLISH, so most likely the holder's user may not either: poll.
local free = redis.call('EXISTS', KEYS[1]) == 0
if (free and ARGV[3] ~= '1') or (not free and redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0) then
    local channel = 'redisson_lock__channel:' .. (KEYS[1]:find('{', 1, true) and KEYS[1] or '{' .. KEYS[1] .. '}')
    local known, may_publish = pcall(redis.acl_check_cmd, 'PUBLISH', channel, '0')
    return {0, redis.call('PTTL', KEYS[1]), known and not may_publish and 1 or nil}
end
-- No lock without a ttl: a user that may not PEXPIRE is refused before anything is written. (Before Redis 7: by trying it.)
local may = redis.acl_check_cmd
if free and not (may and may('PEXPIRE', KEYS[1], ARGV[2])) then redis.call('PEXPIRE', KEYS[1], ARGV[2]) end
local now = redis.call('TIME')
local token = math.max((redis.call('GET', KEYS[2]) or 0) + 1, now[1] * 1000000 + now[2])
redis.call('SET', KEYS[2], string.format('%.0f', token), 'PX', ARGV[4])
redis.call('HSET', KEYS[1], ARGV[1], ARGV[3])
if free or redis.call('PTTL', KEYS[1]) < tonumber(ARGV[2]) then
    redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
return {1, token}
