-- KEYS[1] stock, KEYS[2] the stock as an operator set it last, KEYS[3] bucket of the item: see admit_bucket.lua.
-- With a fence its keys follow: KEYS[2] and on of fenced_textbook.lua, of fenced.lua, or of fenced_apart.lua.
-- ARGV[1] the new stock, ARGV[2] the writer's token, ARGV[3] its epoch.
-- Returns the stock before, or nil: there was none, or the key held something else; or the error EPOCH, STALE or SEGMENTS:
-- nothing was written. SEGMENTS: the stock lies over segments, and the caller has not their locks.
-- The bucket of a stock that is newly set is full.
-- include parts/fence.lua
local segments = redis.pcall('HGET', KEYS[1], 'segments')
local count = type(segments) == 'string' and segments:match('^%d%d?$') and tonumber(segments) or 0
if count >= 2 and count <= 16 then -- no shop lays more
    return redis.error_reply('SEGMENTS ' .. segments)
end
local refused = refused_by_fence(4, ARGV[2], ARGV[3])
if refused then
    return refused
end
local before = redis.pcall('GET', KEYS[1])
if type(before) == 'table' then -- perhaps one with a version: see lay.lua
    before = redis.pcall('HGET', KEYS[1], 'stock')
end
local has_bucket = redis.call('EXISTS', KEYS[3]) == 1 -- if this is refused, nothing is written
redis.call('SET', KEYS[1], ARGV[1])
redis.call('SET', KEYS[2], ARGV[1])
if has_bucket then
    redis.call('SET', KEYS[3], '', 'PX', 1) -- not deleted: this user may SET, as was just seen, and perhaps may not DEL
end
return type(before) == 'string' and before or nil
