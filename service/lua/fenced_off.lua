-- KEYS[1] newest token that the lock issued; ARGV[1] a token. Returns nothing.
-- After this, no write with that token is accepted, not even one that is already on its way.
local newest = redis.call('GET', KEYS[1])
if newest and tonumber(newest) <= tonumber(ARGV[1]) then
    redis.call('SET', KEYS[1], string.format('%.0f', ARGV[1] + 1), 'KEEPTTL')
end
