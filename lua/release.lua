-- release: gives permits of one key back, whatever their weights. Releasing late, or
-- twice, does nothing.
--
-- KEYS[1] the permits of a key; see permits.lua.
-- Arguments:
--   none by name: the ids
-- Reply   for each id, how many places it held.

local reply = {}
for k = 1, #ARGV do
  local places = 0
  repeat
    local removed = redis.pcall('ZREM', KEYS[1], ARGV[k] .. '#' .. string.format('%.0f', places + 1))
    if type(removed) == 'table' then -- an error; a foreign type under our key is for others to discard
      if not string.find(removed.err, 'WRONGTYPE', 1, true) then return removed end
      removed = 0
    end
    places = places + removed
  until removed == 0
  reply[k] = places
end
return reply
