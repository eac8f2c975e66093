-- KEYS[1] stock. Returns {its type, over how many segments it lies, its version}; an empty text: it has none.
local kind = redis.call('TYPE', KEYS[1]).ok
local segments, version
if kind == 'hash' then
    segments, version = unpack(redis.call('HMGET', KEYS[1], 'segments', 'version'))
end
return {kind, segments or '', version or ''}
