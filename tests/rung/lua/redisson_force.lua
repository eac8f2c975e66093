-- KEYS[1] lock, KEYS[2] channel; ARGV[1] message. Returns 1: it was held and is free, 0: it was free. A forced unlock in Redisson's layout.
if redis.call('DEL', KEYS[1]) == 0 then
    return 0
end
redis.call('PUBLISH', KEYS[2], ARGV[1])
return 1
