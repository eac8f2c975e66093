-- KEYS[1] stock, KEYS[2] newest token given out; ARGV[1] the writer's token, ARGV[2] command, ARGV[3] and on: what stands behind its key. Returns its reply; STALE: nothing was written.
--
-- fenced -- fair, and the stock takes a write with the newest token alone.
-- ADDS   a write is safe though its lock is gone: whoever was granted it since shuts the old holder out
-- FLAW   it guards what compares tokens, and nothing else
-- SHOW   scripts/rung cure fenced_textbook
-- CURE   (compare tokens wherever something is written)
-- NEXT   (more than one server for the lock)
-- COST   nothing more: GET, and a script in place of DECR
local newest = redis.call('GET', KEYS[2])
if not newest or tonumber(ARGV[1]) < tonumber(newest) then
    return redis.error_reply('STALE ' .. ARGV[1] .. ': the newest is ' .. (newest or 'unknown'))
end
return redis.call(ARGV[2], KEYS[1], unpack(ARGV, 3))
