-- KEYS[1] an item's queue. Returns nil if it is empty; else its oldest unfinished entry: its number, its idempotency
-- key, the random part of its id, quantity, request, how much of its life is left in ms, and the queue's length.
local entry = redis.call('XRANGE', KEYS[1], '-', '+', 'COUNT', 1)[1]
if not entry then
    return nil
end
local field, time = {}, redis.call('TIME')
for i = 1, #entry[2], 2 do
    field[entry[2][i]] = entry[2][i + 1]
end
local age = time[1] * 1000 + math.floor(time[2] / 1000) - entry[1]:match('^%d+')
return {entry[1], field.key or '', field.id or '', field.quantity or '', field.request or '',
    string.format('%.0f', (tonumber(field.life) or 0) - age), string.format('%.0f', redis.call('XLEN', KEYS[1]))}
