-- KEYS[1] stock, a hash of `stock` and `version`; ARGV[1] the version that was read, ARGV[2] quantity. Returns
--   the stock after the sale;
--   {the version}: nothing was sold: another sale or an operator wrote since the stock was read;
--   nil: there is no such stock; the error SEGMENTS: it lies over segments.
local stock, version, segments = unpack(redis.call('HMGET', KEYS[1], 'stock', 'version', 'segments'))
if segments then
    return redis.error_reply('SEGMENTS ' .. segments)
end
if not stock or not version then
    return nil
end
if version ~= ARGV[1] or tonumber(stock) < tonumber(ARGV[2]) then
    return {version}
end
redis.call('HINCRBY', KEYS[1], 'version', 1)
return redis.call('HINCRBY', KEYS[1], 'stock', -ARGV[2])
