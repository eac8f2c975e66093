-- KEYS the accounts. ARGV[1] and [2] the balance and the version that KEYS[1] gets, ARGV[3] its writer's token, '0': there is
-- none; the next three are for KEYS[2].
-- Returns 0: all are written. {which, token}: another token has claimed that account since the writer read it, '0': it was laid
-- anew; and nothing is written.
for i, key in ipairs(KEYS) do
    local token, newest = ARGV[3 * i], redis.call('HGET', key, 'token') -- an error, if the key holds no hash
    if token ~= '0' and newest ~= token then
        return {i, newest and #newest <= 16 and newest:match('^%d+$') or '0'}
    end
end
for i, key in ipairs(KEYS) do
    redis.call('HSET', key, 'balance', ARGV[3 * i - 2], 'version', ARGV[3 * i - 1])
end
return 0
