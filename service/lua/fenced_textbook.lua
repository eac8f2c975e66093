-- KEYS[1] stock, KEYS[2] last token that wrote.
-- ARGV[1] the writer's token, ARGV[2] command, ARGV[3] and on: its arguments after the key.
-- Returns the command's reply, or the error STALE: nothing was written.
--
-- fenced_textbook -- fair, and the stock refuses tokens older than the last one that wrote.
-- ADDS   a token that the stock compares, in the step that writes
-- FLAW   the old holder writes before the new one: both have read the same, and both are accepted
-- SHOW   scripts/rung break fenced_textbook
-- CURE   fenced
-- NEXT   fenced
-- COST   no further request: GET, and a script in place of DECR
local newest = redis.call('GET', KEYS[2])
if newest and tonumber(ARGV[1]) < (tonumber(newest) or 0) then
    return redis.error_reply('STALE ' .. ARGV[1] .. ': the last that wrote is ' .. newest)
end
redis.call('SET', KEYS[2], ARGV[1], 'PX', 86400000)
return redis.call(ARGV[2], KEYS[1], unpack(ARGV, 3))
