-- renew: the leases of many permits on one key begin anew. One whose lease has ended, or
-- that is not known, is acquired again if there is room, and is lost if there is not.
-- A permit that holds places keeps as many as it holds.
--
-- KEYS[1] the permits of a key; see permits.lua.
-- Arguments: most lease now
--   as in acquire; then for each permit its id and its weight, at least 1
-- Reply   the server's time in microseconds, then for each permit 1 if it is held, or 0
--         if it is lost.

--> open
local reply = { now }
for k = 4, #ARGV, 2 do
  local id, weight = ARGV[k] .. '#', ARGV[k + 1] + 0
  --> held
  if held > 0 then
    weight = held
  elseif used <= most - weight then
    used = used + weight
  else
    weight = 0
  end
  if weight > 0 then
    --> hold
  end
  reply[#reply + 1] = weight > 0 and 1 or 0
end
--> expire
return reply
