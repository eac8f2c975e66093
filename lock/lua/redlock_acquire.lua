-- KEYS[1] lock, KEYS[2] newest token that this server accepted, KEYS[3] the set's identity here.
-- ARGV[1] hold, ARGV[2] ttl in ms.
-- Returns {1: granted, or 0, the least token that this server would accept, the identity; '': it has none}.
-- The identity is read before the lock is granted, in one step: so it is never newer than the grant.
local identity = redis.call('GET', KEYS[3]) or ''
local time = redis.call('TIME')
local token = math.max((redis.call('GET', KEYS[2]) or 0) + 1, time[1] * 1000000 + time[2])
if not (token < 2 ^ 53) then -- a foreign value: beyond it a script's numbers are not exact, so no token would follow
    return redis.error_reply('ERR ' .. KEYS[2] .. ' has no token')
end
return {redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) and 1 or 0, token, identity}
