-- KEYS[1] lock, KEYS[2] the channel that its waiters listen to, if they do; ARGV[1] type of the lock's key, or '' for any that a lock may have. Deletes the lock, whoever holds it, but no key of another type. Returns what inspect.lua would have returned before.
local type = redis.call('TYPE', KEYS[1]).ok
local owner = ''
if type == 'string' then
    owner = redis.call('GET', KEYS[1])
elseif type == 'hash' then
    owner = redis.call('HKEYS', KEYS[1])[1]
end
local left = redis.call('PTTL', KEYS[1])
if (ARGV[1] == '' and owner ~= '') or type == ARGV[1] then
    redis.call('DEL', KEYS[1])
    if KEYS[2] then
        redis.pcall('PUBLISH', KEYS[2], '0') -- where it is refused, they poll
    end
end
return {type, owner, left}
