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
-- in refund: 8 turn | 9,10 calm w,r
--   charge  what the cost adds (0,0 peeks); in upto, what one unit adds; in refund,
--           what was charged
--   bound   the highest level at which the cost fits; negative: it never does. A
--           charge that may be reserved ahead has a higher one. In upto, the level
--           of a full bucket; in refund, the state that the charge led to
--   most    the highest level that the rules allow
--   turn    the instant when the turn of a charge that had to wait came, or 0
--   calm    the highest level at which surely nobody waits
-- Most limits have l = 1 and no parts at all: their last ones are zeros.
-- Reply: w, or -1 - w if the cost does not fit; then r.

--@ load
local w_i, r_i = 0, 0
if s_i and s_i ~= '' then
  local x, r
  if #s_i <= 40 then x, r = string.match(s_i, '^(%d+)%+?(%d*)$') end -- which takes the square of a longer one
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

--@ cost
local cw_i, cr_i = ARGV_i[1] + 0, (ARGV_i[4] or 0) + 0

--@ charge
if cw_i > 0 or cr_i > 0 then
  w_i, r_i, write = w_i + cw_i, r_i + cr_i, true
  if r_i > 0 and r_i > (ARGV_i[7] or 0) + 0 then w_i, r_i = w_i + 1, r_i - 1 - ARGV_i[7] end
end

--@ most
local most_i = 0
do -- the weights of 1, 2, 4, ... units, as far as there is room, and then greedily back
  local l, roomw, roomr = ARGV_i[7] + 1, ARGV_i[2] - w_i, ARGV_i[5] - r_i
  if roomr < 0 then roomw, roomr = roomw - 1, roomr + l end
  if roomw >= 0 then
    local w, r, ws, rs, n = ARGV_i[1] + 0, ARGV_i[4] + 0, {}, {}, 0
    while w < roomw or w == roomw and r <= roomr do
      n = n + 1
      ws[n], rs[n] = w, r
      w, r = w + w, r + r
      if r >= l then w, r = w + 1, r - l end
    end
    for j = n, 1, -1 do
      most_i = most_i + most_i
      if ws[j] < roomw or ws[j] == roomw and rs[j] <= roomr then
        most_i, roomw, roomr = most_i + 1, roomw - ws[j], roomr - rs[j]
        if roomr < 0 then roomw, roomr = roomw - 1, roomr + l end
      end
    end
  end
end
local fits_i = most_i > 0

--@ weigh
local cw_i, cr_i = 0, 0
do
  local l, w, r, k = ARGV_i[7] + 1, ARGV_i[1] + 0, ARGV_i[4] + 0, n
  while k > 0 do
    if k % 2 == 1 then
      cw_i, cr_i = cw_i + w, cr_i + r
      if cr_i >= l then cw_i, cr_i = cw_i + 1, cr_i - l end
    end
    w, r, k = w + w, r + r, math.floor(k / 2)
    if r >= l then w, r = w + 1, r - l end
  end
end

--@ refund
do
  local bw, br = ARGV_i[1] + 0, ARGV_i[4] + 0
  local waited = now < ARGV_i[8] + 0
  if not waited then bw = bw - elapsed end
  local calm = not waited and (w_i < ARGV_i[9] + 0 or w_i == ARGV_i[9] + 0 and r_i <= ARGV_i[10] + 0)
  local last = now + w_i == ARGV_i[2] + 0 and r_i == ARGV_i[5] + 0
  if (calm or last) and bw >= 0 and bw + br > 0 and w_i + r_i > 0 then
    w_i, r_i, write = w_i - bw, r_i - br, true
    if r_i < 0 then w_i, r_i = w_i - 1, r_i + 1 + ARGV_i[7] end
    if w_i < 0 then w_i, r_i = 0, 0 end
  end
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
