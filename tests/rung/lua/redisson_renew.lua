-- KEYS locks; ARGV[1] lease in ms, then an owner for each. Returns for each 1: renewed, 0: not the owner. A watchdog's round in Redisson's layout.
local renewed = {}
for i, key in ipairs(KEYS) do
    renewed[i] = 0
    if redis.call('HEXISTS', key, ARGV[i + 1]) == 1 then
        redis.call('PEXPIRE', key, ARGV[1])
        renewed[i] = 1
    end
end
return renewed
