-- credit: gives back units without a receipt, the latest first and as many as are in use,
-- at every limit of a policy, on one key.
--
-- KEYS[1] the state.
-- Arguments, after those of the limits: now
--   now     the forced time, optionally
-- Reply   the server's time in microseconds, then 1.

--> clock
--> read
--> split
--> load
--> credit
if write then
  --> store
  --> write
end
return { now, 1 }
