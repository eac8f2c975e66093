-- KEYS[1] lock. Returns {type, owner, remaining time in ms; -1: the key never expires}.
-- The owner is a string's value; a hash's field `owner`, or else its first field;
-- a zset's last member. A member's score is when it expires; after that: '' and 0.
local type = redis.call('TYPE', KEYS[1]).ok
local owner, left = '', redis.call('PTTL', KEYS[1])
if type == 'string' then
    owner = redis.call('GET', KEYS[1])
elseif type == 'hash' then
    owner = redis.call('HGET', KEYS[1], 'owner') or redis.call('HKEYS', KEYS[1])[1]
elseif type == 'zset' then
    local time = redis.call('TIME')
    local last = redis.call('ZRANGE', KEYS[1], -1, -1, 'WITHSCORES')
    if left >= 0 then
        left = math.max(last[2] - time[1] * 1000 - math.floor(time[2] / 1000), 0)
    end
    owner = left ~= 0 and last[1] or ''
end
return {type, owner, left}
