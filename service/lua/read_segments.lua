-- KEYS[1] stock, a hash of `segments`; KEYS[2] and on: all its segments, in their order.
-- Returns what each segment has; nil: there is no such stock; the error SEGMENTS: it has another number of them.
-- include parts/segments.lua
local refused = refused_by_layout(#KEYS - 1)
if refused ~= nil then
    return refused
end
return redis.call('MGET', unpack(KEYS, 2))
