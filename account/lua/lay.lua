-- KEYS[1] the account. ARGV[1] its balance. Lays it anew, whatever the key holds: version 1, and no token.
redis.call('DEL', KEYS[1])
return redis.call('HSET', KEYS[1], 'balance', ARGV[1], 'version', 1)
