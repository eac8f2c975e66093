-- Lays a list anew. ARGV[1] how many tasks it has. Returns 1.
-- include parts/list.lua
-- Redis undoes nothing of a script that it refuses half-way. So each command whose right may be missing is sent first in a
-- form that changes nothing.
redis.call('ZADD', KEYS[1], 'XX', 0, 'none')
local said = redis.pcall('HSET', KEYS[4], 'a', 'b', 'c').err
if not said:match('wrong number of arguments') then
    return redis.error_reply(said)
end
redis.call('UNLINK', unpack(KEYS))
local tasks, chunk = tonumber(ARGV[1]), {}
for task = 1, tasks do
    chunk[#chunk + 1] = 0
    chunk[#chunk + 1] = task
    if #chunk == 2000 or task == tasks then
        redis.call('ZADD', KEYS[1], unpack(chunk))
        chunk = {}
    end
end
redis.call('HSET', KEYS[4], 'laid', time[1] .. '.' .. time[2], 'tasks', tasks)
return 1
