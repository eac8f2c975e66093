-- KEYS[1] bucket of the item, KEYS[2] its stock as an operator set it last.
-- KEYS[3] record of the sale, by its idempotency key, if it has one.
-- ARGV[1] rate: tokens a second; ARGV[2] burst: how many tokens fit. '': as many as KEYS[2] says, or the rate.
-- Returns
--   {'kept'}: the sale was decided before, and takes no token;
--   {'admitted'}: it has taken one;
--   {'refused', us}: there is none; one more is there in so many microseconds;
--   {'invalid', n}: KEYS[n] holds something else.
-- A bucket is 'LEVEL TIME': how much was in it at that time in microseconds. A token is 1000000, so RATE comes in each
-- microsecond, and all numbers are whole and exact. A missing bucket and an empty text are a full one.
local TOKEN, MOST = 1000000, 1000000000
local record = KEYS[3] and redis.pcall('GET', KEYS[3]) -- one of another type is for the sale to report
if record and record ~= '' then
    return {'kept'}
end
local rate, burst = tonumber(ARGV[1]), tonumber(ARGV[2])
if not burst then
    local set = redis.call('GET', KEYS[2]) or ARGV[1]
    if not set:match('^%d+$') then
        return {'invalid', 2}
    end
    burst = math.max(1, math.min(tonumber(set), MOST))
end
local time, full = redis.call('TIME'), burst * TOKEN
local now, level, back = time[1] * 1000000 + time[2], full, false
local bucket = redis.call('GET', KEYS[1])
if bucket and bucket ~= '' then
    local had, at = bucket:match('^(%d+) (%d+)$')
    if not had then
        return {'invalid', 1}
    end
    back = now < tonumber(at) -- the clock was set back: nothing came in, and time counts from here
    level = math.min(full, had + math.max(0, now - at) * rate)
end
local admitted = level >= TOKEN
if admitted then
    level = level - TOKEN
end
if admitted or back then -- kept until it is full, and 1 ms for rounding
    redis.call('SET', KEYS[1], string.format('%.0f %.0f', level, now), 'PX', math.ceil((full - level) / rate / 1000) + 1)
end
if admitted then
    return {'admitted'}
end
return {'refused', math.ceil((TOKEN - level) / rate)}
