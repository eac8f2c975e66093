-- KEYS[1] the cached menu; KEYS[2] the claim to fill it. ARGV[1] the menu, ARGV[2] how long it lives in ms, ARGV[3] the
-- token that claimed it. Returns 1; the error STALE and the token that claims it now, '0' if none does: the claim is void,
-- so the menu may be older than the database's.
local claim = redis.call('GET', KEYS[2])
if claim and claim ~= '0' and (#claim > 16 or not claim:find('^[1-9]%d*$')) then
    return redis.error_reply('WRONGTYPE ' .. KEYS[2] .. ' has a claim that is no token: delete it')
end
if claim ~= ARGV[3] then
    return redis.error_reply('STALE ' .. (claim or '0'))
end
redis.call('DEL', KEYS[2]) -- first: if Redis refuses one of the two, the cache is not filled
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return 1
