-- KEYS[1] the cached menu; KEYS[2] the claim to fill it. ARGV[1] the token that claims it, '': none; ARGV[2] how
-- long the claim lives in ms; ARGV[3] early refresh: in the last so many ms of its life the menu is filled anew.
-- Returns {the menu, how long it still lives in ms}; nil: there is none.
-- Whoever will fill the menu says so before it asks the database. A later claim, and a deletion, make this one void.
local menu, left = redis.call('GET', KEYS[1]), redis.call('PTTL', KEYS[1])
if ARGV[1] ~= '' and (not menu or left <= tonumber(ARGV[3])) then
    redis.call('SET', KEYS[2], ARGV[1], 'PX', ARGV[2])
end
return menu and {menu, left}
