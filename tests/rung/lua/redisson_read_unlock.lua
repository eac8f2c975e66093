-- KEYS[1] lock, KEYS[2] channel, KEYS[3] the owner's time-outs, KEYS[4] what all owners' time-outs begin with, KEYS[5] latch; ARGV[1] message, ARGV[2] owner, ARGV[3] PUBLISH or SPUBLISH, ARGV[4] the latch's ttl in ms. Returns nil: not a reader, 0: others are in, 1: freed. A read lock's unlock in Redisson's layout.
local function answer(value)
    redis.call('SET', KEYS[5], value, 'PX', ARGV[4])
    return value
end
local before = redis.call('GET', KEYS[5])
if before then
    return tonumber(before)
end
local mode = redis.call('HGET', KEYS[1], 'mode')
if not mode then
    redis.call(ARGV[3], KEYS[2], ARGV[1])
    answer(1)
    return nil
end
if redis.call('HEXISTS', KEYS[1], ARGV[2]) == 0 then
    return nil
end
local count = redis.call('HINCRBY', KEYS[1], ARGV[2], -1)
if count == 0 then
    redis.call('HDEL', KEYS[1], ARGV[2])
end
redis.call('DEL', KEYS[3] .. ':' .. (count + 1))
if redis.call('HLEN', KEYS[1]) > 1 then
    local longest = -3
    for _, field in ipairs(redis.call('HKEYS', KEYS[1])) do
        local holds = tonumber(redis.call('HGET', KEYS[1], field))
        for i = holds or 0, 1, -1 do
            local left = redis.call('PTTL', KEYS[4] .. ':' .. field .. ':rwlock_timeout:' .. i)
            longest = math.max(longest, left)
        end
    end
    if longest > 0 then
        redis.call('PEXPIRE', KEYS[1], longest)
        return answer(0)
    end
    if mode == 'write' then
        return answer(0)
    end
end
redis.call('DEL', KEYS[1])
redis.call(ARGV[3], KEYS[2], ARGV[1])
return answer(1)
