-- KEYS[1] the account. ARGV[1] its balance. Lays it anew, whatever the key holds: version 1, and no token.
-- Redis undoes nothing of a script. So a user who may not HSET is refused before the old account is deleted.
local said = redis.pcall('HSET', KEYS[1], 'a', 'b', 'c').err
if not said:match('wrong number of arguments') then
    return redis.error_reply(said)
end
redis.call('DEL', KEYS[1])
return redis.call('HSET', KEYS[1], 'balance', ARGV[1], 'version', 1)
