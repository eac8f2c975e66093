-- KEYS[1] stock, KEYS[2] newest token that the lock issued.
-- ARGV[1] the writer's token, ARGV[2] command, ARGV[3] and on: its arguments after the key.
-- Returns the command's reply, or the error STALE: nothing was written.
--
-- fenced -- fair, and the stock accepts a write only with the newest token.
-- ADDS   a late write does no harm: after the next grant the old holder's token is refused
-- FLAW   it protects only what compares tokens
-- SHOW   scripts/rung cure fenced_textbook
-- CURE   (compare tokens wherever something is written)
-- NEXT   (more than one server for the lock)
-- COST   no further request: GET, and a script in place of DECR
local newest = redis.call('GET', KEYS[2])
if not newest or tonumber(ARGV[1]) < tonumber(newest) then
    return redis.error_reply('STALE ' .. ARGV[1] .. ': the newest is ' .. (newest or 'unknown'))
end
return redis.call(ARGV[2], KEYS[1], unpack(ARGV, 3))
