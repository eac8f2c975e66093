-- KEYS[1] the items with a queue, by the time in ms at which a sale was accepted last; KEYS[2] an item's stock.
-- ARGV[1] item.
-- Lists the item with the present time. Returns 1; 0: there is no such stock, so the item is not listed.
if redis.call('EXISTS', KEYS[2]) == 0 then
    return 0
end
local time = redis.call('TIME')
redis.call('ZADD', KEYS[1], string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000)), ARGV[1])
return 1
