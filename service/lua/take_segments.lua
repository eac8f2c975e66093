-- A sale that takes units of several segments: of all, or of none.
-- KEYS[1] stock, a hash of `segments`; KEYS[2] and on: the segments; ARGV[1] the number of all segments, ARGV[2] and on:
-- how many units of each one. Returns
--   what each segment has after the sale;
--   {}: one of them has too few; nothing was sold;
--   nil: there is no such stock; the error SEGMENTS: it has another number of segments.
-- include parts/segments.lua
local refused = refused_by_layout(ARGV[1])
if refused ~= nil then
    return refused
end
local stocks = redis.call('MGET', unpack(KEYS, 2))
for i, stock in ipairs(stocks) do
    local is_number = stock and (stock == '0' or stock:match('^%-?[1-9]%d*$')) -- as DECRBY reads one
    local number = is_number and tonumber(stock) or 0
    if number < tonumber(ARGV[i + 1]) or number > 9007199254740991 then
        return {}
    end
end
local after = {}
for i = 2, #KEYS do
    after[i - 1] = redis.call('DECRBY', KEYS[i], ARGV[i])
end
return after
