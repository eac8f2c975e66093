-- KEYS[1] lock. Returns {type, owner, remaining time in ms; -1: the key never expires}.
-- The owner is a string's value; a hash's field `owner`, or else one of its fields;
-- a zset's last member. A member's score is when it expires; after that: '' and 0.
-- A foreign value may be large: no command walks it, and an owner is cut to 128 bytes.
local type = redis.call('TYPE', KEYS[1]).ok
local owner, left = '', redis.call('PTTL', KEYS[1])
if type == 'string' then
    owner = redis.call('GETRANGE', KEYS[1], 0, 127)
elseif type == 'hash' then
    owner = redis.call('HGET', KEYS[1], 'owner') or redis.call('HRANDFIELD', KEYS[1]) or ''
elseif type == 'zset' then
    local time = redis.call('TIME')
    local last = redis.call('ZRANGE', KEYS[1], -1, -1, 'WITHSCORES')
    if left >= 0 then
        left = math.max(last[2] - time[1] * 1000 - math.floor(time[2] / 1000), 0)
    end
    owner = left ~= 0 and last[1] or ''
end
return {type, owner:sub(1, 128), left}
