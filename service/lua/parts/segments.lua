-- For scripts that read or write the segments of a stock: KEYS[1] is the stock, a hash of `segments`.
-- Returns nil: it lies over so many segments; false: there is no such stock; or the error SEGMENTS: it has another number of
-- them. The script returns the last two.
local function refused_by_layout(count)
    if redis.call('EXISTS', KEYS[1]) == 0 then
        return false
    end
    local segments = redis.call('HGET', KEYS[1], 'segments')
    if segments ~= tostring(count) then
        return redis.error_reply('SEGMENTS ' .. (segments or 'none'))
    end
end
