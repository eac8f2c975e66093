-- KEYS[1] lock. Returns {type, who holds it, what is left in ms}: a string's value, what a hash' field `owner` says or its first field, a zset's last member unless its time, its score, is over ('', 0); -1: the key never expires.
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
