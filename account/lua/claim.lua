-- KEYS[1] the account. ARGV[1] the reader's token, which claims the account: an older token writes it no more.
-- Returns {balance, version, token}, as HMGET; {1, token}: the account has seen this newer token.
local account = redis.call('HMGET', KEYS[1], 'balance', 'version', 'token')
local newest = account[3] or '0'
newest = #newest <= 16 and tonumber(newest:match('^%d+$')) -- false or nil: it is no token, so this is no account
if newest and newest > tonumber(ARGV[1]) then
    return {1, account[3]}
end
if newest and account[1] then
    redis.call('HSET', KEYS[1], 'token', ARGV[1])
end
return account
