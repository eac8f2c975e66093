-- Finds the first task that may be picked. ARGV[1] the token that claims the list for the pick; '': tokens are not compared.
-- Returns {which list this is, the task, '': there is none, how many have a lease, after how many ms the first one ends}; or the
-- errors NOLIST; STALE: a newer token has looked.
-- include parts/list.lua
local laid, newest = unpack(redis.call('HMGET', KEYS[4], 'laid', 'token'))
if not laid then
    return redis.error_reply('NOLIST')
end
if ARGV[1] ~= '' then
    if newest and tonumber(ARGV[1]) < tonumber(newest) then
        return redis.error_reply('STALE ' .. newest)
    end
    redis.call('HSET', KEYS[4], 'token', ARGV[1])
end
local first = redis.call('ZRANGE', KEYS[1], 0, 0, 'WITHSCORES')
if not first[1] then
    return {laid, '', 0, 0}
end
local ends = tonumber(first[2])
return {laid, ends <= now and first[1] or '', redis.call('ZCARD', KEYS[1]), math.max(ends - now, 0)}
