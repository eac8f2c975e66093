-- KEYS[1] lock; ARGV[1] hold, ARGV[2] ttl in ms. Returns 1: this hold has the lock, which lives at least that long; 0: nobody has it; -1: another has it.
local holder = redis.call('GET', KEYS[1])
if not holder then
    return 0
end
if holder ~= ARGV[1] then
    return -1
end
if redis.call('PTTL', KEYS[1]) < tonumber(ARGV[2]) then
    redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
return 1
