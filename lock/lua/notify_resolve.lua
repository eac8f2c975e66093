-- KEYS[1] lock, KEYS[2] its newest token; ARGV[1] owner. Returns {how often it holds, token}, of one moment.
return {redis.call('HGET', KEYS[1], ARGV[1]) or '0', redis.call('GET', KEYS[2]) or '0'}
