-- KEYS[1] an item's queue; ARGV[1] consumer group, ARGV[2] instance.
-- Makes the instance the owner of the oldest unfinished entry. Returns its number; nil: there is none.
-- The instance has the item's lock. So whoever owns an entry already is this instance, or has died, or has lost the
-- lock; and queue_sell.lua sells an entry once, whoever sends it.
local oldest = redis.call('XRANGE', KEYS[1], '-', '+', 'COUNT', 1)[1]
if not oldest then
    return nil
end
local function claim()
    return redis.pcall('XAUTOCLAIM', KEYS[1], ARGV[1], ARGV[2], 0, '0-0', 'COUNT', 1)
end
local claimed = claim()
if claimed.err and claimed.err:match('NOGROUP') then -- mostly it is there
    redis.call('XGROUP', 'CREATE', KEYS[1], ARGV[1], '0')
    claimed = claim()
end
if claimed.err then
    return claimed
end
local taken = claimed[2][1]
if not taken then
    local new = redis.call('XREADGROUP', 'GROUP', ARGV[1], ARGV[2], 'COUNT', 1, 'STREAMS', KEYS[1], '>')
    taken = new and new[1][2][1]
end
if not taken or taken[1] ~= oldest[1] then -- someone has acknowledged the oldest, and has not deleted it
    redis.call('XCLAIM', KEYS[1], ARGV[1], ARGV[2], 0, oldest[1], 'FORCE', 'JUSTID')
end
return oldest[1]
