-- KEYS[1] stock to read, KEYS[2] epoch and token that read it last, KEYS[3] newest token issued,
-- if the lock is on this server; KEYS[4] the stock's epoch, KEYS[5] this server's identity as a lock's.
-- ARGV[1] the reader's token, ARGV[2] its epoch.
-- Returns the stock, or the error EPOCH: the stock is in another epoch; or STALE: a newer token has read it or was issued.
local epoch, identity = unpack(redis.call('HMGET', KEYS[4], 'epoch', 'identity'))
if epoch ~= ARGV[2] then
    return redis.error_reply('EPOCH ' .. ARGV[2] .. ': the stock is in ' .. (epoch or 'none'))
end
local last, newest, here = unpack(redis.call('MGET', KEYS[2], KEYS[3], KEYS[5]))
last = last and last:match('^' .. epoch .. ' (%d+)$') -- a token of another epoch cannot be compared
if here and here == (identity or ''):gsub('@%d+$', '') then -- otherwise the newest token is another lock's
    last = (not newest or tonumber(ARGV[1]) < tonumber(newest)) and (newest or 'unknown') or last
end
if last and tonumber(ARGV[1]) < (tonumber(last) or math.huge) then
    return redis.error_reply('STALE ' .. ARGV[1] .. ': the last that read is ' .. last)
end
redis.call('SET', KEYS[2], epoch .. ' ' .. ARGV[1], 'PX', 86400000)
return redis.call('GET', KEYS[1])
