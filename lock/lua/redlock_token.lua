-- KEYS[1] newest token that this server accepted, KEYS[2] the set's identity here.
-- ARGV[1] a token, ARGV[2] its identity, ARGV[3] the token key's ttl in ms.
-- Returns 1: accepted; 0: this server has another identity, or none; else the least token that it would accept.
if redis.call('GET', KEYS[2]) ~= ARGV[2] then
    return 0
end
local newest = redis.call('GET', KEYS[1])
if newest and not (tonumber(ARGV[1]) > tonumber(newest)) then
    if not (newest + 1 < 2 ^ 53) then -- a foreign value, as in redlock_acquire.lua: the others must not get it
        return redis.error_reply('ERR ' .. KEYS[1] .. ' has no token')
    end
    return newest + 1
end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[3])
return 1
