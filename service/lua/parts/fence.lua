-- The fence, for scripts that do more than to write: it compares what fenced_textbook.lua, fenced.lua and
-- fenced_apart.lua compare. Its keys are theirs after the stock: KEYS[first] and on, to the last one. How many there are
-- says which fence it is; without keys there is none.
-- Returns nil: the writer may write; or the error EPOCH or STALE, which the script returns.
local function refused_by_fence(first, token, epoch)
    local kind = ({[0] = 'none', 'textbook', 'fenced', [4] = 'apart'})[#KEYS - first + 1]
    if not kind then
        return redis.error_reply('ERR ' .. #KEYS - first + 1 .. ' keys are no fence')
    end
    local now, identity
    if kind == 'fenced' or kind == 'apart' then
        now, identity = unpack(redis.call('HMGET', KEYS[kind == 'fenced' and first + 1 or first + 2], 'epoch', 'identity'))
        if now ~= epoch then
            return redis.error_reply('EPOCH ' .. epoch .. ': the stock is in ' .. (now or 'none'))
        end
    end
    if kind == 'textbook' then
        local newest = redis.call('GET', KEYS[first])
        if newest and tonumber(token) < (tonumber(newest) or 0) then
            return redis.error_reply('STALE ' .. token .. ': the last that wrote is ' .. newest)
        end
        redis.call('SET', KEYS[first], token, 'PX', 86400000)
    elseif kind == 'fenced' then
        local newest = redis.call('GET', KEYS[first])
        if not newest or tonumber(token) < tonumber(newest) then
            return redis.error_reply('STALE ' .. token .. ': the newest is ' .. (newest or 'unknown'))
        end
    elseif kind == 'apart' then
        local last, newest, here = unpack(redis.call('MGET', KEYS[first], KEYS[first + 1], KEYS[first + 3]))
        if here and here == (identity or ''):gsub('@%d+$', '') then
            last = (not newest or tonumber(token) < tonumber(newest)) and (newest or 'unknown') or last
        end
        if last ~= epoch .. ' ' .. token then
            last = last and last:match('%S+$') or 'unknown'
            return redis.error_reply('STALE ' .. token .. ': the last that read is ' .. last)
        end
    end
end
