-- KEYS[1] lock. Returns {type, who holds it, what is left in ms}: a string's value, a hash' first field.
local type = redis.call('TYPE', KEYS[1]).ok
local owner = ''
if type == 'string' then
    owner = redis.call('GET', KEYS[1])
elseif type == 'hash' then
    owner = redis.call('HKEYS', KEYS[1])[1]
end
return {type, owner, redis.call('PTTL', KEYS[1])}
