-- KEYS[1] stock to write, KEYS[2] epoch and token that read it last, KEYS[3] newest token issued,
-- if the lock is on this server; KEYS[4] the stock's epoch, KEYS[5] this server's identity as a lock's.
-- ARGV[1] the writer's token, ARGV[2] its epoch, ARGV[3] command, ARGV[4] and on: its arguments after the key.
-- Returns the command's reply, or the error EPOCH or STALE: nothing was written.
local epoch, identity = unpack(redis.call('HMGET', KEYS[4], 'epoch', 'identity'))
if epoch ~= ARGV[2] then
    return redis.error_reply('EPOCH ' .. ARGV[2] .. ': the stock is in ' .. (epoch or 'none'))
end
local last, newest, here = unpack(redis.call('MGET', KEYS[2], KEYS[3], KEYS[5]))
if here and here == (identity or ''):gsub('@%d+$', '') then -- otherwise the newest token is another lock's
    last = (not newest or tonumber(ARGV[1]) < tonumber(newest)) and (newest or 'unknown') or last
end
if last ~= ARGV[2] .. ' ' .. ARGV[1] then
    last = last and last:match('%S+$') or 'unknown'
    return redis.error_reply('STALE ' .. ARGV[1] .. ': the last that read is ' .. last)
end
return redis.call(ARGV[3], KEYS[1], unpack(ARGV, 4))
