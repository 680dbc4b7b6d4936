-- gcra: a leaky bucket as a meter. One unit weighs p parts, and l parts drain in
-- each microsecond. The level of the bucket is a pair, w whole microseconds and r
-- parts, and is never multiplied out: a decision adds, subtracts and compares.
--
-- Letter: g
--
-- Segment: the instant when the bucket is empty again, in microseconds, and "+r"
-- where parts are left over. Empty: unused.
--
-- Arguments: 1,4 charge w,r | 2,5 bound w,r | 3,6 most w,r | 7 l - 1
--   charge  what the cost adds (0,0 peeks); for a refund, what was charged
--   bound   the highest level at which the cost fits; negative: it never does
--   most    the highest level that the rules allow
-- Most limits have l = 1 and no parts at all: their last four are zeros.
-- Reply: w, or -1 - w if the cost does not fit; then r.

--@ load
local w_i, r_i = 0, 0
if s_i and s_i ~= '' then
  local x, r = string.match(s_i, '^(%d+)%+?(%d*)$')
  x = x and x + 0
  if x and x < 9007199254740992 then
    r = r == '' and 0 or r + 0
    if r > (ARGV_i[7] or 0) + 0 then x, r = x + 1, 0 end -- written under another rate: less than 1 us, rounded up
    local w, most = x - now, ARGV_i[3] + 0
    if w > most or w == most and r > (ARGV_i[6] or 0) + 0 then
      w_i, r_i, write = most, (ARGV_i[6] or 0) + 0, true
    elseif w >= 0 then
      w_i, r_i = w, r
    end
  else
    write = true
  end
end

--@ admit
local b_i = ARGV_i[2] + 0
local fits_i = w_i < b_i or w_i == b_i and r_i <= (ARGV_i[5] or 0) + 0

--@ charge
local cw_i, cr_i = ARGV_i[1] + 0, (ARGV_i[4] or 0) + 0
if cw_i > 0 or cr_i > 0 then
  w_i, r_i, write = w_i + cw_i, r_i + cr_i, true
  if r_i > 0 and r_i > (ARGV_i[7] or 0) + 0 then w_i, r_i = w_i + 1, r_i - 1 - ARGV_i[7] end
end

--@ refund
local bw_i, br_i = ARGV_i[1] - elapsed, (ARGV_i[4] or 0) + 0
if bw_i >= 0 and bw_i + br_i > 0 and w_i + r_i > 0 then
  w_i, r_i, write = w_i - bw_i, r_i - br_i, true
  if r_i < 0 then w_i, r_i = w_i - 1, r_i + 1 + ARGV_i[7] end
  if w_i < 0 then w_i, r_i = 0, 0 end
end

--@ store
local text_i, left_i = '', 1
if r_i > 0 then
  text_i, left_i = string.format('%.0f+%.0f', now + w_i, r_i), w_i + 1
elseif w_i > 0 then
  text_i, left_i = string.format('%.0f', now + w_i), w_i
end

--@ reply
fits_i and w_i or -1 - w_i, r_i
