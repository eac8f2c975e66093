-- Finds the first task that may be picked. ARGV[1] the token; ARGV[2] 'fenced': it claims the list for the pick.
-- Returns {which list this is, the task, '0': there is none, how many have a lease, after how many ms the first one ends}; or the
-- errors NOLIST; STALE and the token that has looked since.
-- include parts/list.lua
local laid, newest = unpack(redis.call('HMGET', KEYS[4], 'laid', 'token'))
if not laid then
    return redis.error_reply('NOLIST at all')
end
local refused = ARGV[2] == 'fenced' and refuse_token(KEYS[4], newest)
if refused then
    return refused
end
if ARGV[2] == 'fenced' and newest and tonumber(ARGV[1]) < tonumber(newest) then
    return redis.error_reply('STALE ' .. newest)
end
local first = redis.call('ZRANGE', KEYS[1], 0, 0, 'WITHSCORES')
if first[1] and not first[1]:find('^%d%d?%d?%d?%d?%d?%d?%d?%d?$') then
    return redis.error_reply('WRONGTYPE ' .. KEYS[1] .. ' has a task that is no number: lay the list anew')
end
local ends_ms = first[1] and math.max(first[2] - now, 0) or 0
local left = redis.call('ZCARD', KEYS[1])
if ARGV[2] == 'fenced' then
    redis.call('HSET', KEYS[4], 'token', ARGV[1])
end
return {laid, ends_ms == 0 and first[1] or '0', left, ends_ms}
