-- A sale that takes units of several segments: of all, or of none.
-- KEYS[1] stock, a hash of `segments`; KEYS[2] and on: the segments; ARGV[1] the number of all segments, ARGV[2] and on:
-- how many units of each one. Returns
--   what each segment has after the sale;
--   {}: one of them has too few; nothing was sold;
--   nil: there is no such stock; the error SEGMENTS: it has another number of segments.
if redis.call('EXISTS', KEYS[1]) == 0 then
    return nil
end
local segments = redis.call('HGET', KEYS[1], 'segments')
if segments ~= ARGV[1] then
    return redis.error_reply('SEGMENTS ' .. (segments or 'none'))
end
local stocks = redis.call('MGET', unpack(KEYS, 2))
for i, stock in ipairs(stocks) do
    local number = tonumber(stock or '') or 0
    if number < tonumber(ARGV[i + 1]) or number > 9007199254740991 then
        return {}
    end
end
local after = {}
for i = 2, #KEYS do
    after[i - 1] = redis.call('DECRBY', KEYS[i], ARGV[i])
end
return after
