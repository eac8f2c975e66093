-- KEYS[1] lock, KEYS[2] queue, KEYS[3] its deadlines; ARGV[1] lease in ms, ARGV[2] owner, ARGV[3] how long a place is kept in ms, ARGV[4] the client's clock in ms. Returns nil: acquired, else how long to wait in ms. A fair lock's acquire in Redisson's layout.
local now = tonumber(ARGV[4])
while true do
    local head = redis.call('LINDEX', KEYS[2], 0)
    local deadline = head and tonumber(redis.call('ZSCORE', KEYS[3], head) or nil)
    if not deadline or deadline > now then
        break
    end
    redis.call('ZREM', KEYS[3], head)
    redis.call('LPOP', KEYS[2])
end
local head = redis.call('LINDEX', KEYS[2], 0)
if redis.call('EXISTS', KEYS[1]) == 0 and (not head or head == ARGV[2]) then
    redis.call('LPOP', KEYS[2])
    redis.call('ZREM', KEYS[3], ARGV[2])
    for _, waiter in ipairs(redis.call('ZRANGE', KEYS[3], 0, -1)) do
        redis.call('ZINCRBY', KEYS[3], -ARGV[3], waiter)
    end
    redis.call('HSET', KEYS[1], ARGV[2], 1)
    redis.call('PEXPIRE', KEYS[1], ARGV[1])
    return nil
end
if redis.call('HEXISTS', KEYS[1], ARGV[2]) == 1 then
    redis.call('HINCRBY', KEYS[1], ARGV[2], 1)
    redis.call('PEXPIRE', KEYS[1], ARGV[1])
    return nil
end
if redis.call('ZSCORE', KEYS[3], ARGV[2]) then
    return math.max(0, redis.call('PTTL', KEYS[1]))
end
local last = redis.call('LINDEX', KEYS[2], -1)
local deadline = last and last ~= ARGV[2] and redis.call('ZSCORE', KEYS[3], last)
local ttl = deadline and deadline - now or redis.call('PTTL', KEYS[1])
if redis.call('ZADD', KEYS[3], ttl + ARGV[3] + now, ARGV[2]) == 1 then
    redis.call('RPUSH', KEYS[2], ARGV[2])
end
return ttl
