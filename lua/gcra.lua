-- gcra: a leaky bucket as a meter. One unit weighs p parts, and l parts drain in
-- each microsecond. The level of the bucket is a pair, w whole microseconds and r
-- parts, and is never multiplied out: a decision adds, subtracts and compares.
--
-- Letter: G
--
-- Segment: the instant when the bucket is empty again, in microseconds, and "+r"
-- where parts are left over. Empty: unused.
--
-- Arguments of take:   charge_w bound_w most_w charge_r bound_r most_r parts
-- Arguments of upto:   unit_w capacity_w most_w unit_r capacity_r most_r parts
-- Arguments of refund: charge_w charged_w most_w turn queue_w charge_r charged_r most_r parts queue_r
-- Arguments of credit: charge_w most_w charge_r most_r parts
--   charge    what the cost adds (0 peeks); in refund, what the charge had added; in
--             credit, what the units had
--   bound     the highest level at which the cost fits, higher if it can be reserved
--             ahead; negative: it never fits
--   most      the highest level that the rules allow
--   parts     the most parts beside whole microseconds: l - 1
--   unit      what one unit adds
--   capacity  the level up to which there are units: of a full bucket, or with debt
--   charged   the state that the charge led to
--   turn      when the turn of a charge that had to wait came, or 0
--   queue     the level above which callers may be waiting for their turn
-- Most limits have l = 1 and no parts at all: see gcra_whole.lua.
-- Reply: w, or -1 - w if the cost does not fit; then r.

--@ load
local w_i, r_i = 0, 0
if s_i and s_i ~= '' then
  local empty, parts
  if #s_i <= 40 then empty, parts = string.match(s_i, '^(%d+)%+?(%d*)$') end -- which takes the square of a longer one
  empty = empty and empty + 0
  if empty and empty < 9007199254740992 then
    parts = parts == '' and 0 or parts + 0
    if parts > (ARG.parts or 0) + 0 then empty, parts = empty + 1, 0 end -- written under another rate: less than 1 us, rounded up
    local w, most = empty - now, ARG.most_w + 0
    if w > most or w == most and parts > (ARG.most_r or 0) + 0 then
      w_i, r_i, write = most, (ARG.most_r or 0) + 0, true
    elseif w >= 0 then
      w_i, r_i = w, parts
    end
  else
    write = true
  end
end

--@ admit
local bound_i = ARG.bound_w + 0
fits_i = w_i < bound_i or w_i == bound_i and r_i <= (ARG.bound_r or 0) + 0

--@ most
local most_i = 0
do -- the weights of 1, 2, 4, ... units, as far as there is room, and then greedily back
  local l, roomw, roomr = ARG.parts + 1, ARG.capacity_w - w_i, ARG.capacity_r - r_i
  if roomr < 0 then roomw, roomr = roomw - 1, roomr + l end
  if roomw >= 0 then
    local w, r, ws, rs, n = ARG.unit_w + 0, ARG.unit_r + 0, {}, {}, 0
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

--@ cost
local cw_i, cr_i = ARG.charge_w + 0, (ARG.charge_r or 0) + 0

--@ times
local times_i = n
if cw_i > 0 or cr_i > 0 then
  local l, roomw, roomr = (ARG.parts or 0) + 1, bound_i - w_i, (ARG.bound_r or 0) - r_i
  if roomr < 0 then roomw, roomr = roomw - 1, roomr + l end
  local more = math.min(n - 1, math.floor((roomw + roomr / l) / (cw_i + cr_i / l))) -- or one off if there are parts
  local w, r = more * cw_i + math.floor(more * cr_i / l), more * cr_i % l
  if w > roomw or w == roomw and r > roomr then
    more = more - 1
  elseif l > 1 and more < n - 1 then
    w, r = w + cw_i, r + cr_i
    if r >= l then w, r = w + 1, r - l end
    if w < roomw or w == roomw and r <= roomr then more = more + 1 end
  end
  times_i = more + 1
end

--@ costs
cw_i, cr_i = times * cw_i + math.floor(times * cr_i / ((ARG.parts or 0) + 1)), times * cr_i % ((ARG.parts or 0) + 1)

--@ weigh
local cw_i, cr_i = 0, 0
do
  local l, w, r, n = ARG.parts + 1, ARG.unit_w + 0, ARG.unit_r + 0, taken
  while n > 0 do
    if n % 2 == 1 then
      cw_i, cr_i = cw_i + w, cr_i + r
      if cr_i >= l then cw_i, cr_i = cw_i + 1, cr_i - l end
    end
    w, r, n = w + w, r + r, math.floor(n / 2)
    if r >= l then w, r = w + 1, r - l end
  end
end

--@ charge
if cw_i > 0 or cr_i > 0 then
  w_i, r_i, write = w_i + cw_i, r_i + cr_i, true
  if r_i > 0 and r_i > (ARG.parts or 0) + 0 then w_i, r_i = w_i + 1, r_i - 1 - ARG.parts end
end

--@ refund
do
  local back_w, back_r = ARG.charge_w + 0, ARG.charge_r + 0
  local waiting = now < ARG.turn + 0
  if not waiting then back_w = back_w - passed end
  local alone = not waiting and (w_i < ARG.queue_w + 0 or w_i == ARG.queue_w + 0 and r_i <= ARG.queue_r + 0)
  local last = now + w_i == ARG.charged_w + 0 and r_i == ARG.charged_r + 0
  if (alone or last) and back_w >= 0 and back_w + back_r > 0 and w_i + r_i > 0 then
    w_i, r_i, write = w_i - back_w, r_i - back_r, true
    if r_i < 0 then w_i, r_i = w_i - 1, r_i + 1 + ARG.parts end
    if w_i < 0 then w_i, r_i = 0, 0 end
  end
end

--@ credit
if w_i + r_i > 0 then
  w_i, r_i, write = w_i - ARG.charge_w, r_i - ARG.charge_r, true
  if r_i < 0 then w_i, r_i = w_i - 1, r_i + 1 + ARG.parts end
  if w_i < 0 then w_i, r_i = 0, 0 end
end

--@ store
local text_i, left_i = '', 1
local empty = now + w_i
local low = empty % 1000000000
if r_i > 0 then
  text_i = low < empty and string.format('%d%09d+%d', (empty - low) / 1000000000, low, r_i) or string.format('%.0f+%.0f', empty, r_i)
  left_i = w_i + 1
elseif w_i > 0 then
  text_i = low < empty and string.format('%d%09d', (empty - low) / 1000000000, low) or string.format('%.0f', empty)
  left_i = w_i
end

--@ reply
fits_i and w_i or -1 - w_i, r_i
