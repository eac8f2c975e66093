-- KEYS[1] record of a sale, by its idempotency key; KEYS[2] the item's queue. Returns the record; nil: there is none.
-- A record of an accepted sale counts while its entry is in the queue. If someone has removed the entry, the record is
-- emptied: no outcome will come, and the key is free. It is not deleted: this user may SET, and perhaps may not DEL.
local kept = redis.call('GET', KEYS[1])
if not kept or kept == '' then
    return nil
end
local number, id = kept:match('^202 %d+ (%d+%-%d+) (%x+) ')
if not number then
    return kept
end
local entry = redis.call('XRANGE', KEYS[2], number, number)[1]
for i = 1, entry and #entry[2] or 0, 2 do
    if entry[2][i] == 'id' and entry[2][i + 1] == id then
        return kept
    end
end
redis.call('SET', KEYS[1], '', 'PX', 1)
return nil
