-- KEYS[1] lock, KEYS[2] its newest token; ARGV[1] owner, ARGV[2] ttl in ms, ARGV[3] how many holds it has then, ARGV[4] the token's ttl in ms. Returns {1, token}: acquired, else {0, what is left of the holder's ttl in ms}, and 1 behind it: its user may not tell others, so perhaps nobody tells it.
local free = redis.call('EXISTS', KEYS[1]) == 0
if (free and ARGV[3] ~= '1') or (not free and redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0) then
    local channel = 'redisson_lock__channel:' .. (KEYS[1]:find('{', 1, true) and KEYS[1] or '{' .. KEYS[1] .. '}')
    local known, may_tell = pcall(redis.acl_check_cmd, 'PUBLISH', channel, '0')
    return {0, redis.call('PTTL', KEYS[1]), known and not may_tell and 1 or nil}
end
local now = redis.call('TIME')
local token = math.max((redis.call('GET', KEYS[2]) or 0) + 1, now[1] * 1000000 + now[2])
redis.call('SET', KEYS[2], string.format('%.0f', token), 'PX', ARGV[4])
redis.call('HSET', KEYS[1], ARGV[1], ARGV[3])
local short = free or redis.call('PTTL', KEYS[1]) < tonumber(ARGV[2])
local given = short and redis.pcall('PEXPIRE', KEYS[1], ARGV[2])
if free and given ~= 1 then redis.call('HDEL', KEYS[1], ARGV[1]) end -- no lock without an end
return given ~= 1 and given or {1, token}
