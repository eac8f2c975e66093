-- KEYS[1] stock; ARGV[1] quantity. Returns {1 sold or 0 not, the stock that was read}; nil: there is no stock.
local stock = redis.call('GET', KEYS[1])
if not stock then
    return nil
end
if (tonumber(stock) or 0) < tonumber(ARGV[1]) then
    return {0, stock}
end
redis.call('DECRBY', KEYS[1], ARGV[1])
return {1, stock}
