-- upto: takes as many units as there are, up to a number, over all limits of a
-- policy, on one key: the most that every limit admits.
--
-- KEYS[1] the state.
-- ARGV    the arguments of each limit in turn; the most units to take; optionally the
--         forced time.
-- Reply   the server's time in microseconds, how many units were taken, then the
--         reply of each limit: whether it admits one unit, and its state.

--> open
--> split
--> load
--> most
local n = math.min(ARGV_extra + 0, most_all)
if n > 0 then
  --> weigh
  --> charge
end
if write then
  --> store
  --> write
end
return { now, n, reply_all }
