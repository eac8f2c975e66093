-- KEYS[1] lock, KEYS[2] (optional) the channel of its waiters; ARGV[1] type of a lock's key.
-- Deletes the lock for any holder, unless the key has another type.
-- Returns {type, owner, remaining time in ms}, as read just before.
-- A foreign value may be large: no command walks it, and an owner is cut to 128 bytes.
local type = redis.call('TYPE', KEYS[1]).ok
local owner = ''
if type == 'string' then
    owner = redis.call('GETRANGE', KEYS[1], 0, 127)
elseif type == 'hash' then
    owner = redis.call('HRANDFIELD', KEYS[1]) or ''
end
local left = redis.call('PTTL', KEYS[1])
if type == ARGV[1] then
    redis.call('DEL', KEYS[1])
    if KEYS[2] then
        redis.pcall('PUBLISH', KEYS[2], '0') -- if it is refused, waiters poll
    end
end
return {type, owner:sub(1, 128), left}
