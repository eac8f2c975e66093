-- KEYS[1] stock, KEYS[2] record of the sale's key, and where there is a fence its keys: fenced.lua's KEYS[2], or fenced_apart.lua's KEYS[2] and KEYS[3]; ARGV[1] quantity, ARGV[2] instance and the sale's mark, ARGV[3] ms that a record lives, ARGV[4] the writer's token. Returns {'kept', the record that was there}; {'made', the new one}; {'few', the stock} when it is too few, or more than a double counts exactly; nil: there is none; STALE: nothing was written.
local kept = redis.call('GET', KEYS[2])
if kept and kept ~= '' then
    return {'kept', kept}
end
if #KEYS == 3 then
    local newest = redis.call('GET', KEYS[3])
    if not newest or tonumber(ARGV[4]) < tonumber(newest) then
        return redis.error_reply('STALE ' .. ARGV[4] .. ': the newest is ' .. (newest or 'unknown'))
    end
elseif #KEYS == 4 then
    local last, newest = unpack(redis.call('MGET', KEYS[3], KEYS[4]))
    if last ~= ARGV[4] or newest and tonumber(ARGV[4]) < tonumber(newest) then
        return redis.error_reply('STALE ' .. ARGV[4] .. ': the last that read is ' .. (newest or last or 'unknown'))
    end
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
    if #KEYS == 2 and number <= 0 and number >= -9007199254740991 and stock:match('^%-?%d+$') then
        return keep('409', stock)
    end
    return {'few', stock}
end
-- The record first: no sale stands without one. A DECRBY that is refused takes it back, by the command
-- that wrote it and so is allowed: an empty record is none.
local made = keep('200', string.format('%.0f', number - ARGV[1]))
local after = redis.pcall('DECRBY', KEYS[1], ARGV[1])
if type(after) == 'table' then
    redis.call('SET', KEYS[2], '', 'PX', 1)
    return after
end
return made
