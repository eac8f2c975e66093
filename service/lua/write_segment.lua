-- Writes one segment as a command would, if the stock still lies so, and the segment is there.
-- KEYS[1] stock, a hash of `segments`; KEYS[2] segment; ARGV[1] the number of all segments, ARGV[2] command, ARGV[3] its
-- argument. Returns the command's reply; nil: there is no such stock; the error SEGMENTS: it has another number of segments.
-- include parts/segments.lua
local refused = refused_by_layout(ARGV[1])
if refused ~= nil then
    return refused
end
if redis.call('EXISTS', KEYS[2]) == 0 then
    return redis.error_reply('SEGMENTS none')
end
return redis.call(ARGV[2], KEYS[2], ARGV[3])
