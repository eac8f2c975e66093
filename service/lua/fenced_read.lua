-- KEYS[1] stock to read, KEYS[2] last token that read it,
-- KEYS[3] newest token issued, if the lock is on this server; ARGV[1] the reader's token.
-- Returns the stock, or the error STALE: a newer token has read it or was issued.
for i = 2, 3 do
    local newest = redis.call('GET', KEYS[i])
    if newest and tonumber(ARGV[1]) < tonumber(newest) then
        return redis.error_reply('STALE ' .. ARGV[1] .. ': the last that read is ' .. newest)
    end
end
redis.call('SET', KEYS[2], ARGV[1], 'PX', 86400000)
return redis.call('GET', KEYS[1])
