-- Writes a task's result. ARGV[1] the task; ARGV[2] which list it is of; ARGV[3] the pick's token; ARGV[4] the request that did
-- it; ARGV[5] 'fenced': the task must have no result, and its latest pick that token.
-- Returns 1; or the errors LAID: the list was laid anew; STALE and the token of the latest pick.
-- include parts/list.lua
if redis.call('HGET', KEYS[4], 'laid') ~= ARGV[2] then
    return redis.error_reply('LAID anew')
end
if ARGV[5] == 'fenced' then
    local latest = redis.call('HGET', KEYS[2], ARGV[1])
    local refused = refuse_token(KEYS[2], latest)
    if refused then
        return refused
    end
    if latest ~= ARGV[3] or redis.call('HEXISTS', KEYS[3], ARGV[1]) == 1 then
        return redis.error_reply('STALE ' .. (latest or '0'))
    end
end
-- Redis undoes nothing of a script that it refuses half-way. So each command whose right may be missing is sent first in a
-- form that changes nothing.
redis.call('ZREM', KEYS[1], 'none')
redis.call('HSET', KEYS[3], ARGV[1], ARGV[4])
redis.call('ZREM', KEYS[1], ARGV[1])
return 1
