-- KEYS[1] stock; ARGV[1] quantity. Returns the stock after the sale; {the stock} when it is too few; nil: there is none.
local stock = redis.call('GET', KEYS[1])
if not stock then
    return nil
end
if (tonumber(stock) or 0) < tonumber(ARGV[1]) then
    return {stock}
end
return redis.call('DECRBY', KEYS[1], ARGV[1])
