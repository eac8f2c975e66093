-- KEYS[1] stock, KEYS[2] record of the sale, by its idempotency key; KEYS[3] the item's queue, KEYS[4] pointer to the key,
-- KEYS[5] the items with a queue, by the time in ms at which a sale was accepted last.
-- ARGV[1] quantity, ARGV[2] idempotency key, ARGV[3] random part of the sale's id, ARGV[4] request, ARGV[5] instance,
-- ARGV[6] how long the entry lives in ms, ARGV[7] how many entries there may be, ARGV[8] item.
-- Returns
--   {'kept', record}: a sale with its idempotency key was accepted or decided before;
--   {'made', record}: it is accepted now;
--   {'was'}: it was accepted when this was sent before;
--   {'full'}: the queue is full;
--   nil: there is no such stock.
-- To run it again with the same ARGV[3] accepts nothing twice. Each answer of an accepted sale comes after a write, so
-- that WAIT on this connection asks about it.
-- The item is listed in the same step: so no entry is in a queue that nobody looks at.
-- A key of another type is refused before anything is written.
local kept, length, pointer = redis.call('GET', KEYS[2]), redis.call('XLEN', KEYS[3]), redis.call('GET', KEYS[4])
if pointer and pointer ~= '' then
    redis.call('SET', KEYS[4], pointer, 'KEEPTTL')
    return {'was'}
end
local time = redis.call('TIME')
local now = string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000))
if kept and kept ~= '' then
    local number, id = kept:match('^202 %d+ (%d+%-%d+) (%x+) ')
    if not number then
        return {'kept', kept}
    end
    local entry = redis.call('XRANGE', KEYS[3], number, number)[1]
    for i = 1, entry and #entry[2] or 0, 2 do
        if entry[2][i] == 'id' and entry[2][i + 1] == id then
            redis.call('ZADD', KEYS[5], now, ARGV[8])
            redis.call('SET', KEYS[2], kept)
            return {'kept', kept}
        end
    end -- else someone has removed its entry, and it is accepted anew
end
if not redis.call('GET', KEYS[1]) then -- a stock that is laid otherwise is refused, too
    return nil
end
redis.call('ZADD', KEYS[5], now, ARGV[8]) -- if someone has deleted the list, a full queue is found again, too
if length >= tonumber(ARGV[7]) then
    return {'full'}
end
-- Until there is an outcome, neither expires: a second sale under the key would be accepted.
redis.call('SET', KEYS[2], '')
-- The number only grows, also while the clock is set back. So the time is kept apart from it.
local number = redis.pcall('XADD', KEYS[3], '*', 'key', ARGV[2], 'id', ARGV[3], 'quantity', ARGV[1], 'request', ARGV[4],
    'at', now, 'life', ARGV[6])
if type(number) == 'table' then
    redis.call('SET', KEYS[2], '', 'PX', 1)
    return number
end
redis.call('SET', KEYS[4], ARGV[2])
local record = table.concat({'202', ARGV[1], number, ARGV[3], ARGV[5]}, ' ')
redis.call('SET', KEYS[2], record)
return {'made', record}
