-- release: gives one permit back, whatever its weight. Releasing late, or twice, does
-- nothing.
--
-- KEYS[1] the permits of a key; see permits.lua.
-- ARGV    1 the id
-- Reply   how many places that were.

local places = 0
while true do
  local removed = redis.pcall('ZREM', KEYS[1], ARGV[1] .. '#' .. string.format('%.0f', places + 1))
  if type(removed) == 'table' then -- an error; a foreign type under our key is for others to discard
    if not string.find(removed.err, 'WRONGTYPE', 1, true) then return removed end
    removed = 0
  end
  if removed == 0 then return { places } end
  places = places + 1
end
