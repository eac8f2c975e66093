-- KEYS[1] stock, KEYS[2] record of the sale, by its idempotency key; KEYS[3] the item's queue, KEYS[4] pointer to the key.
-- With a fence its keys follow: KEYS[2] and on of fenced.lua, or of fenced_apart.lua.
-- ARGV[1] number of the entry, ARGV[2] consumer group, ARGV[3] instance and the attempt's mark, ARGV[4] ttl of an outcome
-- in ms, ARGV[5] 'sell', or 'expire': do nothing but end an entry whose life is over; ARGV[6] the random part of the
-- sale's id, ARGV[7] the writer's token, ARGV[8] its epoch.
-- Returns
--   {'made', record}: this attempt has decided the sale, now or when it was sent before;
--   {'kept', record}: another one had decided it, or its key was accepted anew; its entry is acknowledged now;
--   {'not', number of the oldest entry}: the entry is finished, or is not its item's oldest unfinished one;
--   {'few', the stock}: it is no number that a double counts; nothing was sold;
--   the error EPOCH or STALE: nothing was written.
-- Stock, record and acknowledgement change together. To run it again with the same mark sells nothing twice.
-- include parts/fence.lua
local entry = redis.call('XRANGE', KEYS[3], '-', '+', 'COUNT', 1)[1]
local kept = redis.call('GET', KEYS[2])
local is_done = kept and kept ~= '' and not kept:match('^202 ')
local is_mine = is_done and kept:sub(-#ARGV[3] - 1) == ' ' .. ARGV[3]
local field, time = {}, redis.call('TIME')
for i = 1, entry and #entry[2] or 0, 2 do
    field[entry[2][i]] = entry[2][i + 1]
end
-- A queue that was deleted may give a number again: so the id is compared, too.
if not entry or entry[1] ~= ARGV[1] or field.id ~= ARGV[6] then
    return is_mine and {'made', kept} or {'not', entry and entry[1] or ''}
end
redis.call('GET', KEYS[4]) -- a key of another type is refused before anything is written
redis.call('XACK', KEYS[3], ARGV[2], '0-1') -- and so is a missing right; no entry has this number
redis.call('XDEL', KEYS[3], '0-1')
local function finish(what, record)
    redis.call('SET', KEYS[4], field.key, 'PX', ARGV[4])
    redis.call('XACK', KEYS[3], ARGV[2], ARGV[1])
    redis.call('XDEL', KEYS[3], ARGV[1])
    return {what, record}
end
if is_done then
    return finish(is_mine and 'made' or 'kept', kept)
end
local number, id = (kept or ''):match('^202 %d+ (%d+%-%d+) (%x+) ')
if number and (number ~= ARGV[1] or id ~= field.id) then
    return finish('kept', kept)
end
local function settle(code, left)
    local record = table.concat({code, field.quantity, left, ARGV[3]}, ' ')
    redis.call('SET', KEYS[2], record, 'PX', ARGV[4])
    return record
end
local age, life = time[1] * 1000 + math.floor(time[2] / 1000) - field.at, tonumber(field.life)
if age >= life or age < -life then -- it waited for too long, or the clock was set back by more than its life
    return finish('made', settle('503', '0'))
elseif ARGV[5] == 'expire' then
    return {'not', ARGV[1]}
end
local refused = refused_by_fence(5, ARGV[7], ARGV[8])
if refused then
    return refused
end
local stock = redis.call('GET', KEYS[1])
if not stock then
    return finish('made', settle('404', '0'))
end
number = tonumber(stock) or 0
if number < tonumber(field.quantity) or number > 9007199254740991 then
    if math.abs(number) <= 9007199254740991 and (stock == '0' or stock:match('^%-?[1-9]%d*$')) then
        return finish('made', settle('409', stock))
    end
    return {'few', stock}
end
-- The record is written first, so no sale lacks one. If DECRBY is refused, the record is as it was.
local made = settle('200', string.format('%.0f', number - field.quantity))
local after = redis.pcall('DECRBY', KEYS[1], field.quantity)
if type(after) == 'table' then
    redis.call('SET', KEYS[2], kept or '')
    return after
end
return finish('made', made)
