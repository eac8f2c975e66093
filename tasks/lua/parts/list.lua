-- What each script begins with. KEYS: a list's [1] tasks that have no result: a sorted set, scored with the end of the
-- lease in ms of this server's clock, 0: nobody has it; [2] hash: the token of each task's latest pick; [3] hash: which
-- request made each task's result; [4] hash: `laid` names the list, which another one replaces; `tasks`: how many it has;
-- `token`: of the newest look, if tokens are compared.
-- A key of another type is refused before anything is written.
for key, needed in ipairs({'zset', 'hash', 'hash', 'hash'}) do
    local is = redis.call('TYPE', KEYS[key]).ok
    if is ~= 'none' and is ~= needed then
        return redis.error_reply('WRONGTYPE ' .. KEYS[key] .. ' is a ' .. is .. ', no ' .. needed .. ': delete it')
    end
end
-- Nothing is compared with what is no token; an error names its key, and nothing was written.
local function refuse_token(key, token)
    if token and token ~= '0' and (#token > 16 or not token:find('^[1-9]%d*$')) then
        return redis.error_reply('WRONGTYPE ' .. key .. ' has a token that is no number: lay the list anew')
    end
end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
