-- KEYS the accounts. ARGV[1] and [2] the balance and the version that KEYS[1] gets, ARGV[3] its writer's token, '0': there is
-- none; the next three are for KEYS[2].
-- Returns 0: all are written. {which, token}: that account has seen this newer token, and nothing is written.
for i, key in ipairs(KEYS) do
    local token, newest = tonumber(ARGV[3 * i]), redis.call('HGET', key, 'token') -- an error, if the key holds no hash
    if token > 0 and newest and tonumber(newest) > token then
        return {i, newest}
    end
end
for i, key in ipairs(KEYS) do
    redis.call('HSET', key, 'balance', ARGV[3 * i - 2], 'version', ARGV[3 * i - 1])
end
return 0
