-- Sets the stock, or adds to it, and lays it with a version: as a hash of `stock` and `version`.
-- KEYS[1] stock; KEYS[2] and KEYS[3] as of set_stock.lua; ARGV[1] 'set' or 'add', ARGV[2] units. Returns
--   {the stock before, the stock after}; an empty text before: there was no number;
--   nil: nothing is there to add to; nothing was written.
local kind = redis.call('TYPE', KEYS[1]).ok
local before = ''
local version = '0'
if kind == 'string' then
    before = redis.call('GET', KEYS[1])
elseif kind == 'hash' then
    before, version = unpack(redis.call('HMGET', KEYS[1], 'stock', 'version'))
end
if not before or not tostring(before):match('^%-?%d+$') or #before > 16 then
    before = ''
end
if ARGV[1] == 'add' and before == '' then
    return nil
end
local after = ARGV[1] == 'add' and string.format('%.0f', before + ARGV[2]) or ARGV[2]
if kind ~= 'hash' then
    redis.call('DEL', KEYS[1])
end
-- The version of a hash only grows, so that a sale that has read the old stock finds that it changed.
version = tonumber(version) and tonumber(version) < 9007199254740991 and version or '0'
redis.call('HSET', KEYS[1], 'stock', after, 'version', string.format('%.0f', version + 1))
if ARGV[1] == 'set' then
    redis.call('SET', KEYS[2], after)
    if redis.call('EXISTS', KEYS[3]) == 1 then
        redis.call('SET', KEYS[3], '', 'PX', 1)
    end
end
return {before, after}
