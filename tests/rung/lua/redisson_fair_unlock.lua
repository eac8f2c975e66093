-- KEYS[1] lock, KEYS[2] queue, KEYS[3] its deadlines, KEYS[4] what the owners' channels begin with, KEYS[5] latch; ARGV[1] message, ARGV[2] lease in ms, ARGV[3] owner, ARGV[4] the client's clock in ms, ARGV[5] PUBLISH or SPUBLISH, ARGV[6] the latch's ttl in ms. Returns nil: not the owner, 0: it still holds, 1: freed, or it was free. A fair lock's unlock in Redisson's layout.
local function answer(value)
    redis.call('SET', KEYS[5], value, 'PX', ARGV[6])
    return value
end
local function wake_the_head()
    local head = redis.call('LINDEX', KEYS[2], 0)
    if head then
        redis.call(ARGV[5], KEYS[4] .. ':' .. head, ARGV[1])
    end
end
local before = redis.call('GET', KEYS[5])
if before then
    return tonumber(before)
end
while true do
    local head = redis.call('LINDEX', KEYS[2], 0)
    local deadline = head and tonumber(redis.call('ZSCORE', KEYS[3], head) or nil)
    if not deadline or deadline > tonumber(ARGV[4]) then
        break
    end
    redis.call('ZREM', KEYS[3], head)
    redis.call('LPOP', KEYS[2])
end
if redis.call('EXISTS', KEYS[1]) == 0 then
    wake_the_head()
    return answer(1)
end
if redis.call('HEXISTS', KEYS[1], ARGV[3]) == 0 then
    return nil
end
if redis.call('HINCRBY', KEYS[1], ARGV[3], -1) > 0 then
    redis.call('PEXPIRE', KEYS[1], ARGV[2])
    return answer(0)
end
redis.call('DEL', KEYS[1])
answer(1)
wake_the_head()
return 1
