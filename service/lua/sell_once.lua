-- KEYS[1] stock, KEYS[2] record of the sale, by its idempotency key.
-- With a fence its keys follow: KEYS[2] and on of fenced.lua, or of fenced_apart.lua.
-- ARGV[1] quantity, ARGV[2] instance and the sale's mark, ARGV[3] ttl of a record in ms.
-- ARGV[4] the writer's token, ARGV[5] its epoch.
-- Returns
--   {'kept', record}: this sale was decided before;
--   {'made', record}: it is decided now;
--   {'few', the stock}: nothing was sold: it is too small, or too large for a double to be exact;
--   nil: there is no such stock;
--   the error EPOCH or STALE: nothing was written.
-- include parts/fence.lua
local kept = redis.call('GET', KEYS[2])
if kept and kept ~= '' then
    return {'kept', kept}
end
local refused = refused_by_fence(3, ARGV[4], ARGV[5])
if refused then
    return refused
end
local function keep(code, left)
    local record = table.concat({code, ARGV[1], left, ARGV[2]}, ' ')
    redis.call('SET', KEYS[2], record, 'PX', ARGV[3])
    return {'made', record}
end
local stock = redis.call('GET', KEYS[1])
if not stock then
    return nil
end
local number = tonumber(stock) or 0
if number < tonumber(ARGV[1]) or number > 9007199254740991 then
    if #KEYS == 2 and number >= -9007199254740991 and (stock == '0' or stock:match('^%-[1-9]%d*$')) then
        return keep('409', stock)
    end
    return {'few', stock}
end
-- The record is written first, so no sale lacks one. If DECRBY is refused, an empty record replaces it
-- and counts as none. It is not deleted: this user may SET, as was just seen, and perhaps may not DEL.
local made = keep('200', string.format('%.0f', number - ARGV[1]))
local after = redis.pcall('DECRBY', KEYS[1], ARGV[1])
if type(after) == 'table' then
    redis.call('SET', KEYS[2], '', 'PX', 1)
    return after
end
return made
