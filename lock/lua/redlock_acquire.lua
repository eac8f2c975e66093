-- KEYS[1] lock, KEYS[2] newest token that this server accepted, KEYS[3] the set's identity here.
-- ARGV[1] hold, ARGV[2] ttl in ms.
-- The error WRONGTYPE names the key.
-- Returns {1: granted, or 0, the least token that this server would accept, the identity; '': it has none}.
-- The identity is read before the lock is granted, in one step: so it is never newer than the grant.
for i = 2, 3 do
    local type = redis.call('TYPE', KEYS[i]).ok
    if type ~= 'string' and type ~= 'none' then
        return redis.error_reply('WRONGTYPE ' .. KEYS[i] .. ' holds a ' .. type)
    end
end
local identity = redis.call('GETRANGE', KEYS[3], 0, 95) -- a longer one is not the library's
local time = redis.call('TIME')
local token = math.max((redis.call('GET', KEYS[2]) or 0) + 1, time[1] * 1000000 + time[2])
if not (token < 2 ^ 53) then -- a foreign value: beyond it a script's numbers are not exact, so no token would follow
    return redis.error_reply('ERR ' .. KEYS[2] .. ' has no token')
end
return {redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) and 1 or 0, token, identity}
