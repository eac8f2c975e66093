-- KEYS[1] record of a sale; ARGV[1] the least ttl in ms that it has after this.
-- Returns 1, or 0: there is no such record. It always writes, so that WAIT on this connection asks about it; the record
-- and a longer ttl stay as they are.
local record, left_ms = redis.call('GET', KEYS[1]), redis.call('PTTL', KEYS[1])
if not record then
    return 0
elseif left_ms == -1 then -- without an end
    redis.call('SET', KEYS[1], record)
    return 1
end
return redis.call('PEXPIRE', KEYS[1], math.max(left_ms, ARGV[1]))
