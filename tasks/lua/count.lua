-- Returns {how many tasks the list has, those that may be picked now, those with a lease, those with a result}; or the
-- error NOLIST.
-- include parts/list.lua
local tasks = redis.call('HGET', KEYS[4], 'tasks')
if not tasks then
    return redis.error_reply('NOLIST at all')
end
local open = redis.call('ZCOUNT', KEYS[1], '-inf', now)
return {tonumber(tasks) or 0, open, redis.call('ZCARD', KEYS[1]) - open, redis.call('HLEN', KEYS[3])}
