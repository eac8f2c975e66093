-- Writes one segment as a command would, if the stock still lies so.
-- KEYS[1] stock, a hash of `segments`; KEYS[2] segment; ARGV[1] the number of all segments, ARGV[2] command, ARGV[3] its
-- argument. Returns the command's reply; nil: there is no such stock; the error SEGMENTS: it has another number of segments.
if redis.call('EXISTS', KEYS[1]) == 0 then
    return nil
end
local segments = redis.call('HGET', KEYS[1], 'segments')
if segments ~= ARGV[1] then
    return redis.error_reply('SEGMENTS ' .. (segments or 'none'))
end
return redis.call(ARGV[2], KEYS[2], ARGV[3])
