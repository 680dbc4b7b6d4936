-- refund: gives back what an earlier charge still weighs, at every limit of a
-- policy, on one key. It never lowers a level below "unused".
--
-- KEYS[1] the state.
-- ARGV    the arguments of each limit in turn; the server's time of the charge, in
--         microseconds; optionally the forced time.
-- Reply   the server's time in microseconds, then 1.

--> open
--> split
--> load
local at = ARGV_extra + 0
local elapsed = math.max(0, now - at)
--> refund
if write then
  --> store
  --> write
end
return { now, 1 }
