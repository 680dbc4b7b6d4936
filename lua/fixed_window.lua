-- fixed-window: counts units in windows that do not overlap.
--
-- Letter: f
--
-- Segment: "f", the units counted, a comma, the end of the window in microseconds.
-- Empty: unused.
--
-- Arguments: 1 units | 2 rate | 3 period | 4 period | 5 start | 6 end | 7 next
-- in refund: 8 charged
--   units    the cost (0 peeks); in refund, what to give back; in upto, nothing
--   rate     the most units in one window
--   3        of windows that begin with the first hit; 0 otherwise
--   4        of windows that begin at its multiples since the epoch; 0 otherwise
--   start..  of a window of the calendar, [start, end), and the end of the one after
--            it: where the caller guesses the server's time to be; 0 otherwise
--   charged  the end of the window of the charge
-- If the time is in neither window of the calendar, nothing is done, and the reply is
-- the time alone: whoever asks again can tell the windows around it.
-- Reply: the units counted, or -1 - units if the cost does not fit; then the end of
-- the window, or 0.

--@ load
local n_i, e_i, end_i = 0, 0, now + ARGV_i[3]
do
  local period, later = (ARGV_i[4] or 0) + 0, (ARGV_i[7] or 0) + 0
  if period > 0 then
    end_i = now - now % period + period
  elseif later > 0 then
    if now < ARGV_i[5] + 0 or now >= later then return { now } end
    end_i = ARGV_i[6] + 0
    if now >= end_i then end_i = later end
  end
end
if s_i and s_i ~= '' then
  local n, e = string.match(s_i, '^f(%d+),(%d+)$')
  n, e = (n or 0) + 0, (e or 0) + 0
  if n == 0 or n >= 9007199254740992 or e == 0 or e >= 9007199254740992 then
    write = true
  elseif e > now then
    n_i, e_i = n, e
    if e > end_i then e_i, write = end_i, true end
    if n > ARGV_i[2] + 0 then n_i, write = ARGV_i[2] + 0, true end
  end
end

--@ admit
local fits_i = n_i + ARGV_i[1] <= ARGV_i[2] + 0

--@ cost
local c_i = ARGV_i[1] + 0

--@ charge
if c_i > 0 then
  if n_i == 0 then e_i = end_i end
  n_i, write = n_i + c_i, true
end

--@ most
local most_i = ARGV_i[2] - n_i
local fits_i = most_i > 0

--@ weigh
local c_i = n

--@ refund
do
  local back = math.min(ARGV_i[1] + 0, n_i)
  if back > 0 and e_i == ARGV_i[8] + 0 then
    n_i, write = n_i - back, true
    if n_i == 0 then e_i = 0 end
  end
end

--@ store
local text_i, left_i = '', 1
if n_i > 0 then text_i, left_i = string.format('f%.0f,%.0f', n_i, e_i), e_i - now end

--@ reply
fits_i and n_i or -1 - n_i, e_i
