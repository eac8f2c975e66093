-- KEYS[1] the set's identity here; ARGV[1] a new one, "NUMBER:TEXT".
-- Returns 1: this server has it now; 0: it keeps its own, which is larger. So the servers of a set come to have the same.
local function number(identity) -- 0: it is none of the library's
    local digits = #identity < 96 and identity:match('^(%d+):[%w:-]+$')
    return digits and #digits < 16 and tonumber(digits) or 0
end
local mine, new = redis.call('GETRANGE', KEYS[1], 0, 95), ARGV[1]
if number(new) < number(mine) or (number(new) == number(mine) and new <= mine) then
    return 0
end
redis.call('SET', KEYS[1], new)
return 1
