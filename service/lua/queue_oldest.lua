-- KEYS[1] an item's queue. Returns nil if it is empty; else its oldest unfinished entry: its number, its idempotency
-- key, the random part of its id, quantity, request, how much of its life is left in ms, and the queue's length.
-- If the clock was set back, an entry has its whole life at most; by more than that, none.
local entry = redis.call('XRANGE', KEYS[1], '-', '+', 'COUNT', 1)[1]
if not entry then
    return nil
end
local field, time = {}, redis.call('TIME')
for i = 1, #entry[2], 2 do
    field[entry[2][i]] = entry[2][i + 1]
end
local at, life, left = tonumber(field.at), tonumber(field.life), ''
if at and life then
    local age = time[1] * 1000 + math.floor(time[2] / 1000) - at
    left = string.format('%.0f', age < -life and 0 or math.min(life, life - age))
end
return {entry[1], field.key or '', field.id or '', field.quantity or '', field.request or '', left,
    string.format('%.0f', redis.call('XLEN', KEYS[1]))}
