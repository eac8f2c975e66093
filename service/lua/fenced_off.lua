-- KEYS[1] newest token that the lock issued, KEYS[2] the stock's epoch; ARGV[1] a token, ARGV[2] its epoch.
-- Returns nothing. After this, no write with that token is accepted, not even one that is already on its way.
-- If the newest token is missing, none is accepted until the next grant, which is above all tokens of this one. It is
-- not made again here: a newer grant's may have been lost.
local newest = redis.call('GET', KEYS[1])
if redis.call('HGET', KEYS[2], 'epoch') == ARGV[2] and newest and tonumber(newest) <= tonumber(ARGV[1]) then
    redis.call('SET', KEYS[1], string.format('%.0f', ARGV[1] + 1), 'KEEPTTL')
end
