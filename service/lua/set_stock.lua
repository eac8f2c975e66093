-- KEYS[1] stock, KEYS[2] the stock as an operator set it last, KEYS[3] bucket of the item: see admit_bucket.lua.
-- With a fence its keys follow: KEYS[2] and on of fenced_textbook.lua, of fenced.lua, or of fenced_apart.lua.
-- ARGV[1] the new stock, ARGV[2] the writer's token, ARGV[3] its epoch.
-- Returns the stock before, or nil: there was none, or the key held something else; or the error EPOCH, STALE or SEGMENTS:
-- nothing was written. SEGMENTS: the stock lies over segments, and the caller has not their locks.
-- The bucket of a stock that is newly set is full.
local segments = redis.pcall('HGET', KEYS[1], 'segments')
if type(segments) == 'string' then
    return redis.error_reply('SEGMENTS ' .. segments)
end
local kind = ({[3] = 'none', [4] = 'textbook', [5] = 'fenced', [7] = 'apart'})[#KEYS]
local epoch, identity
if kind == 'fenced' or kind == 'apart' then
    epoch, identity = unpack(redis.call('HMGET', KEYS[kind == 'fenced' and 5 or 6], 'epoch', 'identity'))
    if epoch ~= ARGV[3] then
        return redis.error_reply('EPOCH ' .. ARGV[3] .. ': the stock is in ' .. (epoch or 'none'))
    end
end
if kind == 'textbook' then
    local newest = redis.call('GET', KEYS[4])
    if newest and tonumber(ARGV[2]) < (tonumber(newest) or 0) then
        return redis.error_reply('STALE ' .. ARGV[2] .. ': the last that wrote is ' .. newest)
    end
    redis.call('SET', KEYS[4], ARGV[2], 'PX', 86400000)
elseif kind == 'fenced' then
    local newest = redis.call('GET', KEYS[4])
    if not newest or tonumber(ARGV[2]) < tonumber(newest) then
        return redis.error_reply('STALE ' .. ARGV[2] .. ': the newest is ' .. (newest or 'unknown'))
    end
elseif kind == 'apart' then
    local last, newest, here = unpack(redis.call('MGET', KEYS[4], KEYS[5], KEYS[7]))
    if here and here == (identity or ''):gsub('@%d+$', '') then
        last = (not newest or tonumber(ARGV[2]) < tonumber(newest)) and (newest or 'unknown') or last
    end
    if last ~= ARGV[3] .. ' ' .. ARGV[2] then
        last = last and last:match('%S+$') or 'unknown'
        return redis.error_reply('STALE ' .. ARGV[2] .. ': the last that read is ' .. last)
    end
end
local before = redis.pcall('GET', KEYS[1])
if type(before) == 'table' then -- perhaps one with a version: see lay.lua
    before = redis.pcall('HGET', KEYS[1], 'stock')
end
redis.call('SET', KEYS[1], ARGV[1])
redis.call('SET', KEYS[2], ARGV[1])
if redis.call('EXISTS', KEYS[3]) == 1 then
    redis.call('SET', KEYS[3], '', 'PX', 1) -- not deleted: this user may SET, as was just seen, and perhaps may not DEL
end
return type(before) == 'string' and before or nil
