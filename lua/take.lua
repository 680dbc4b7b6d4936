-- take: one decision over all limits of a policy, on one key. All limits admit, or
-- none is charged. A refusal and a peek write nothing, except to heal: state that
-- had to be clamped or discarded is stored corrected, at once.
--
-- KEYS[1] the state.
-- Arguments, after those of the limits: now
--   now     the forced time, optionally. Zeros at the very end may be left out.
-- Reply   the server's time in microseconds, then the reply of each limit: whether
--         it admits, and its state after the charge if all admit, before it if not.

--> clock
--> read
--> split
--> load
local verdicts_all
--> admit
if fits_all then
  --> cost
  --> charge
end
if write then
  --> store
  --> write
end
return { now, reply_all }
