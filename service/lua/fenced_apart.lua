-- KEYS[1] stock to write, KEYS[2] last token that read it,
-- KEYS[3] newest token issued, if the lock is on this server.
-- ARGV[1] the writer's token, ARGV[2] command, ARGV[3] and on: its arguments after the key.
-- Returns the command's reply, or the error STALE: nothing was written.
local last, newest = unpack(redis.call('MGET', KEYS[2], KEYS[3]))
if last ~= ARGV[1] or newest and tonumber(ARGV[1]) < tonumber(newest) then
    return redis.error_reply('STALE ' .. ARGV[1] .. ': the last that read is ' .. (newest or last or 'unknown'))
end
return redis.call(ARGV[2], KEYS[1], unpack(ARGV, 3))
