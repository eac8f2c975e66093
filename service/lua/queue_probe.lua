-- KEYS[1] the items with a queue; KEYS[2] stock, KEYS[3] record, KEYS[4] queue and KEYS[5] pointer of no
-- item. Asks whether this user may send each command that a queue needs, and writes nothing: Redis checks the rights
-- before it looks at the arguments, and no command here has arguments that change something.
-- Returns what Redis says of the first command that it refuses, or an empty text.
local list, stock, record, queue, pointer = unpack(KEYS)
local commands = {
    {'TIME'}, {'GET', stock}, {'DECRBY', stock, 'none'},
    {'GET', record}, {'SET', record, '', 'XX', 'PX', 1}, {'GET', pointer}, {'SET', pointer, '', 'XX', 'PX', 1},
    {'XLEN', queue}, {'XADD', queue, 'NOMKSTREAM', '*', 'a', 'b'}, {'XRANGE', queue, '-', '+'}, {'XREVRANGE', queue, '+', '-'},
    {'XGROUP', 'CREATE', queue, 'none', '0'}, {'XGROUP', 'DELCONSUMER', queue, 'none', 'none'}, {'XINFO', 'CONSUMERS', queue, 'none'},
    {'XREADGROUP', 'GROUP', 'none', 'none', 'STREAMS', queue, '>'}, {'XAUTOCLAIM', queue, 'none', 'none', 0, '0-0'},
    {'XCLAIM', queue, 'none', 'none', 0, '0-1'}, {'XACK', queue, 'none', '0-1'}, {'XDEL', queue, '0-1'}, {'DEL', queue},
    {'ZADD', list, 'XX', 0, '{none}'}, {'ZSCORE', list, '{none}'}, {'ZREM', list, '{none}'}, {'ZSCAN', list, 0},
}
for _, command in ipairs(commands) do
    local answer = redis.pcall(unpack(command))
    local said = type(answer) == 'table' and answer.err or ''
    if said:match('NOPERM') or said:match('ermission') or said:match("can't run this command")
        or said:match('[Uu]nknown Redis command') then
        return command[1] .. ': ' .. said
    end
end
return ''
