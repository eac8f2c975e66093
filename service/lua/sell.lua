-- KEYS[1] stock; ARGV[1] quantity. Returns
--   the stock after the sale;
--   {the stock}: nothing was sold: it is too small, or too large for a double to be exact;
--   nil: there is no such stock.
local stock = redis.call('GET', KEYS[1])
if not stock then
    return nil
end
local number = tonumber(stock) or 0
if number < tonumber(ARGV[1]) or number > 9007199254740991 then
    return {stock}
end
return redis.call('DECRBY', KEYS[1], ARGV[1])
