-- upto: takes as many units as there are, up to a number, over all limits of a
-- policy, on one key: the most that every limit admits. Up to none, it only looks
-- whether there is a unit.
--
-- KEYS[1] the state.
-- Arguments, after those of the limits: units now
--   units   the most units to take
--   now     the forced time, optionally
-- The section weigh reads
--   taken   how many units are taken
-- Reply   the server's time in microseconds, how many units were taken, then the
--         reply of each limit: whether it admits one unit, and its state.

--> clock
--> read
--> split
--> load
--> most
local taken = math.min(ARG.units + 0, most_all)
if taken > 0 then
  --> weigh
  --> charge
end
if write then
  --> store
  --> write
end
return { now, taken, reply_all }
