-- KEYS[1] lock, KEYS[2] queue, KEYS[3] newest token, KEYS[4] grant; ARGV[1] what, ARGV[2] client, ARGV[3] ttl in ms, ARGV[4] a grant's ms, ARGV[5] token, ARGV[6] whether more of the client wait. Returns: acquire {1, token, expired} had, {0, what is left of the lock in ms, expired} not; release and leave {1, 0} let go, {2, token} kept for more, {0, 0} not the holder; renew {1}, {0}.
-- The protocol is docs/design/fair.md. Tokens above the newest up to newest + 999 belong to its client.
local lock, queue, newest, grant = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local what, me, ttl, grant_ms, mine, more = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6] == '1'
local owner, token, state = unpack(redis.call('HMGET', lock, 'owner', 'token', 'state'))

local function next_token(last)
    local time = redis.call('TIME')
    local number = math.max(last + 1000, time[1] * 1000000 + time[2])
    redis.call('SET', newest, string.format('%.0f', number), 'PX', 86400000)
    return string.format('%.0f', number)
end

local function last_token()
    return tonumber(token or redis.call('GET', newest) or 0)
end

local function give(client, how, for_ms)
    token = next_token(last_token())
    redis.call('HSET', lock, 'owner', client, 'token', token, 'state', how)
    redis.call('PEXPIRE', lock, for_ms)
end

local function hold()
    give(me, 'held', ttl)
    return tonumber(token)
end

local function grant_to(head)
    give(head, 'granted', grant_ms)
    redis.call('SET', grant, head, 'PX', grant_ms * 10)
    redis.call('RPUSH', 'wake:' .. head, lock)
    redis.call('PEXPIRE', 'wake:' .. head, grant_ms)
end

local function let_go()
    local head = redis.call('LPOP', queue)
    if head then
        grant_to(head)
    elseif owner then
        redis.call('DEL', lock)
    end
end

local function line_up()
    if not redis.call('LPOS', queue, me) then
        redis.call('RPUSH', queue, me)
    end
    redis.call('PEXPIRE', queue, grant_ms * 10)
end

if what == 'acquire' then
    if owner == me and state == 'granted' then
        redis.call('HSET', lock, 'state', 'held')
        redis.call('PEXPIRE', lock, ttl)
        redis.call('DEL', grant)
        return {1, tonumber(token), 0}
    end
    if owner == me then
        return {1, hold(), 0}
    end
    local expired = 0
    if not owner then
        expired = redis.call('DEL', grant)
        local head = redis.call('LINDEX', queue, 0)
        if not head or head == me then
            redis.call('LPOP', queue)
            return {1, hold(), expired}
        end
    end
    line_up()
    if not owner then
        let_go()
    end
    return {0, redis.call('PTTL', lock), expired}
end

local is_mine = owner == me and token == mine

if what == 'renew' then
    return {is_mine and state == 'held' and redis.call('PEXPIRE', lock, ttl) or 0}
end

if what == 'leave' then
    redis.call('LREM', queue, 0, me)
    redis.call('DEL', grant)
end
if what == 'leave' and owner == me or is_mine then
    if more and redis.call('RPUSH', queue, me) == 1 then
        redis.call('LPOP', queue)
        return {2, hold()}
    end
    let_go()
    return {1, 0}
end
if not owner then
    let_go()
end
return {0, 0}
