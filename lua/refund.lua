-- refund: gives back what an earlier charge still weighs, at every limit of a
-- policy, on one key. It never lowers a level below "unused".
--
-- KEYS[1] the state.
-- Arguments, after those of the limits: at now
--   at      the server's time of the charge, in microseconds
--   now     the forced time, optionally
-- The section refund reads
--   at      the same, as a number
--   passed  how long ago that is
-- Reply   the server's time in microseconds, then 1.

--> clock
--> read
--> split
--> load
local at = ARG.at + 0
local passed = math.max(0, now - at)
--> refund
if write then
  --> store
  --> write
end
return { now, 1 }
