-- Sets the stock, or adds to it, and lays it anew: as a number, as a hash of `stock` and `version`, or over segments, which
-- a hash of `segments` counts. The caller has the locks of these segments.
-- KEYS[1] stock; KEYS[2] and KEYS[3] as of set_stock.lua; KEYS[4] and on: segments.
-- ARGV[1] 'set' or 'add', ARGV[2] units, ARGV[3] 'number', 'version', or how many segments.
-- Returns
--   {the stock before, the stock after, the segments before, what each had, the segments after, what each has}: an empty text
--   before: there was no number; 0 segments: it lay in one piece;
--   nil: nothing is there to add to; nothing was written;
--   the error SEGMENTS: it lies over more segments than the caller has locks of; nothing was written.
local kind, held = redis.call('TYPE', KEYS[1]).ok, #KEYS - 3
local stock, version, segments
if kind == 'string' then
    stock = redis.call('GET', KEYS[1])
elseif kind == 'hash' then
    stock, version, segments = unpack(redis.call('HMGET', KEYS[1], 'stock', 'version', 'segments'))
end
local function number(text)
    return text and #text <= 16 and text:match('^%-?%d+$') and tonumber(text)
end
local function text(units)
    return string.format('%.0f', units)
end
segments = number(segments) or 0
segments = segments >= 0 and segments <= 16 and segments or 0 -- no shop lays more
if segments > held then
    return redis.error_reply('SEGMENTS ' .. text(segments))
end
local before, parts = number(stock), {}
for i = 1, segments do
    local found = redis.pcall('GET', KEYS[3 + i])
    if type(found) == 'table' and not found.err:match('WRONGTYPE') then -- not known is not 0
        return found
    end
    local part = type(found) == 'string' and number(found) or 0
    before = (before or 0) + math.max(part, 0)
    parts[i] = text(part)
end
if ARGV[1] == 'add' and not before then
    return nil
end
local after = ARGV[1] == 'add' and before + ARGV[2] or tonumber(ARGV[2])
local laid = {}
-- Redis undoes nothing of a script that it refuses half-way. So each command whose right may be missing is sent first in a
-- form that changes nothing.
redis.call('SET', KEYS[2], '', redis.call('EXISTS', KEYS[2]) == 1 and 'NX' or 'XX')
if ARGV[3] ~= 'number' and kind == 'hash' then
    redis.call('HDEL', KEYS[1], '')
elseif ARGV[3] ~= 'number' then
    local said = redis.pcall('HSET', KEYS[1], 'a', 'b', 'c').err
    if not said:match('wrong number of arguments') then
        return redis.error_reply(said)
    end
    if kind ~= 'none' then
        redis.call('DEL', KEYS[1])
    end
end
-- The version of a hash only grows, so that a sale that has read the old stock finds that it changed.
if ARGV[3] == 'number' then
    redis.call('SET', KEYS[1], text(after))
elseif ARGV[3] == 'version' then
    version = number(version) and number(version) < 9007199254740991 and version or '0'
    redis.call('HSET', KEYS[1], 'stock', text(after), 'version', text(version + 1))
else
    local count = tonumber(ARGV[3])
    redis.call('HSET', KEYS[1], 'segments', ARGV[3])
    for i = 1, count do
        laid[i] = text(after >= i and math.floor((after - i) / count) + 1 or 0)
        redis.call('SET', KEYS[3 + i], laid[i])
    end
end
if ARGV[3] ~= 'number' and kind == 'hash' then
    redis.call('HDEL', KEYS[1], ARGV[3] == 'version' and 'segments' or 'stock')
end
-- A write that is late finds no number there, and is refused.
for i = #laid + 1, segments do
    redis.call('SET', KEYS[3 + i], 'moved', 'PX', 86400000)
end
if ARGV[1] == 'set' then
    redis.call('SET', KEYS[2], text(after))
    if redis.call('EXISTS', KEYS[3]) == 1 then
        redis.call('SET', KEYS[3], '', 'PX', 1)
    end
end
return {before and text(before) or '', text(after), parts, laid}
