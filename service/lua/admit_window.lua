-- KEYS[1] counter of the item; KEYS[2] record of the sale, by its idempotency key, if it has one.
-- ARGV[1] rate: sales a second.
-- Returns what admit_bucket.lua does.
--
-- FLAW: the counter begins anew with each second of the server's clock. RATE sales at the end of one second and RATE at
-- the beginning of the next are all admitted.
local record = KEYS[2] and redis.pcall('GET', KEYS[2])
if record and record ~= '' then
    return {'kept'}
end
local time, count = redis.call('TIME'), 0
local counter = redis.call('GET', KEYS[1])
if counter then
    local had, second = counter:match('^(%d+) (%d+)$')
    if not had then
        return {'invalid', 1}
    end
    count = second == time[1] and tonumber(had) or 0
end
if count >= tonumber(ARGV[1]) then
    return {'refused', 1000000 - time[2]}
end
redis.call('SET', KEYS[1], string.format('%.0f %s', count + 1, time[1]), 'PX', 2000)
return {'admitted'}
