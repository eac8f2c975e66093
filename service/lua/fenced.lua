-- KEYS[1] stock, KEYS[2] newest token that the lock issued, KEYS[3] the stock's epoch.
-- ARGV[1] the writer's token, ARGV[2] its epoch, ARGV[3] command, ARGV[4] and on: its arguments after the key.
-- Returns the command's reply, or the error EPOCH or STALE: nothing was written.
--
-- fenced -- fair, and the stock accepts a write only with the newest token.
-- ADDS   a late write does no harm: after the next grant, or a switch of the lock, it is refused
-- FLAW   it protects only what compares tokens
-- SHOW   scripts/rung cure fenced_textbook
-- CURE   (compare tokens wherever something is written)
-- NEXT   (more than one server for the lock)
-- COST   no further request: GET, and a script in place of DECR
local epoch = redis.call('HGET', KEYS[3], 'epoch')
if epoch ~= ARGV[2] then
    return redis.error_reply('EPOCH ' .. ARGV[2] .. ': the stock is in ' .. (epoch or 'none'))
end
local newest = redis.call('GET', KEYS[2])
if not newest or tonumber(ARGV[1]) < tonumber(newest) then
    return redis.error_reply('STALE ' .. ARGV[1] .. ': the newest is ' .. (newest or 'unknown'))
end
return redis.call(ARGV[3], KEYS[1], unpack(ARGV, 4))
