-- KEYS[1] newest token given out; ARGV[1] a token. From here on no write with it is taken, though one may still be on its way. Returns nothing.
local newest = redis.call('GET', KEYS[1])
if newest and tonumber(newest) <= tonumber(ARGV[1]) then
    redis.call('SET', KEYS[1], string.format('%.0f', ARGV[1] + 1), 'KEEPTTL')
end
