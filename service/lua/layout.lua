-- KEYS[1] stock. Returns {its type, over how many segments it lies, its version}; an empty text: it has none.
-- A user who may not ask learns no type.
local kind = redis.pcall('TYPE', KEYS[1]).ok
local found = kind == 'hash' and redis.pcall('HMGET', KEYS[1], 'segments', 'version') or {}
return {kind or '', found[1] or '', found[2] or ''}
