-- KEYS[1] the items whose queue was used, by the time in ms; ARGV[1] item, ARGV[2] an age in ms, '' if there is none.
-- Without an age it lists the item with the time of now. With an age it removes the item if it is listed for longer.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
if ARGV[2] == '' then
    return redis.call('ZADD', KEYS[1], string.format('%.0f', now), ARGV[1])
end
local listed = redis.call('ZSCORE', KEYS[1], ARGV[1])
return listed and now - listed > tonumber(ARGV[2]) and redis.call('ZREM', KEYS[1], ARGV[1]) or 0
