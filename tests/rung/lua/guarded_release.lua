-- KEYS[1] lock; ARGV[1] hold, then commands, each as its number of arguments and these. Returns nil: not the holder and nothing was done, else the commands' replies.
if redis.call('GET', KEYS[1]) ~= ARGV[1] then
    return nil
end
local replies, at = {}, 2
while at <= #ARGV do
    local argc = tonumber(ARGV[at])
    replies[#replies + 1] = redis.pcall(unpack(ARGV, at + 1, at + argc))
    at = at + argc + 1
end
redis.call('DEL', KEYS[1])
return replies
