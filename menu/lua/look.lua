-- Looks into the cache. KEYS[1] the cached menu; KEYS[2] the claim to fill it. ARGV[1] the token that claims it, '': none;
-- ARGV[2] how long the claim lives in ms; ARGV[3] a menu that has less than this to live in ms is claimed, too; 0: it is
-- not. Returns {the menu, how long it still lives in ms}; nil: there is none.
-- A reader claims the menu before it asks the database. A later claim or a deletion makes this claim void. A reader that
-- looks late finds the claim of a newer token, and leaves it.
local menu, left = redis.call('GET', KEYS[1]), redis.call('PTTL', KEYS[1])
local refresh = tonumber(ARGV[3])
local claims = ARGV[1] ~= '' and (not menu or left < refresh)
local claim = claims and redis.call('GET', KEYS[2]) or '0'
if claim ~= '0' and (#claim > 16 or not claim:find('^[1-9]%d*$')) then
    return redis.error_reply('WRONGTYPE ' .. KEYS[2] .. ' has a claim that is no token: delete it')
end
claim = tonumber(claim)
if claims and claim <= tonumber(ARGV[1]) then
    redis.call('SET', KEYS[2], ARGV[1], 'PX', ARGV[2])
end
return menu and {menu, left}
