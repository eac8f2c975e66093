-- KEYS[1] stock, a hash of `segments`; KEYS[2] and on: all its segments, in their order.
-- Returns what each segment has; nil: there is no such stock; the error SEGMENTS: it has another number of them.
if redis.call('EXISTS', KEYS[1]) == 0 then
    return nil
end
local segments = redis.call('HGET', KEYS[1], 'segments')
if segments ~= tostring(#KEYS - 1) then
    return redis.error_reply('SEGMENTS ' .. (segments or 'none'))
end
return redis.call('MGET', unpack(KEYS, 2))
