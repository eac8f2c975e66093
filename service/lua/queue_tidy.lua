-- KEYS[1] the items with a queue, by the time in ms at which a sale was accepted last; KEYS[2] an item's queue.
-- ARGV[1] item, ARGV[2] consumer group, ARGV[3] an age in ms.
-- Removes what was not used for longer than that: the item from the list with its queue, if that is empty; and consumers
-- that own no entry, such as those of instances that have ended. Returns 1: the item is listed no more; 0: it is.
local age, time = tonumber(ARGV[3]), redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local listed = tonumber(redis.call('ZSCORE', KEYS[1], ARGV[1]) or nil)
if redis.call('XLEN', KEYS[2]) == 0 and (not listed or now - listed > age) then
    redis.call('DEL', KEYS[2])
    redis.call('ZREM', KEYS[1], ARGV[1])
    return 1
end
if listed and listed > now then -- the clock was set back: the age counts from here
    redis.call('ZADD', KEYS[1], string.format('%.0f', now), ARGV[1])
end
for _, consumer in ipairs(redis.pcall('XINFO', 'CONSUMERS', KEYS[2], ARGV[2])) do -- an error: there is no group yet
    local field = {}
    for i = 1, #consumer, 2 do
        field[consumer[i]] = consumer[i + 1]
    end
    if field.pending == 0 and field.idle > age then
        redis.call('XGROUP', 'DELCONSUMER', KEYS[2], ARGV[2], field.name)
    end
end
return 0
