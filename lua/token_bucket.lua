-- token-bucket: refilled in steps. All tokens of a period arrive together, counted from
-- the first use after the bucket was full.
--
-- Letter: t
--
-- Segment: "t", the instant of the last refill, in microseconds, ",", and the tokens,
-- which are negative in debt and while charges wait. Empty: unused, which is full.
--
-- Arguments: 1 period | 2 rate | 3 burst | 4 cost | 5 need | 6 low | 7 ahead
-- in upto: 1 to 6 | in refund: 1 to 3 | 4 units | 5 last | 6 low | 7 tokens | 8 calm |
-- 9 turn
--   cost    how many tokens are taken (0 peeks)
--   need    how many must be there for that: more than burst if it never fits
--   low     how far below zero the rules allow
--   ahead   how long before the refill that makes it fit it may be charged
--   last, tokens   the state that the charge led to
--   calm    the least tokens with which surely nobody waits
--   turn    the instant when the turn of a charge that had to wait came, or 0
-- Most limits have neither debt nor reservations: their last arguments are zeros.
-- Reply: the instant of the last refill, l, or -1 - l if the cost does not fit; then the
-- tokens. Both are 0 if unused.

--@ load
local l_i, t_i = 0, ARGV_i[3] + 0
if s_i and s_i ~= '' then
  local l, t = string.match(s_i, '^t(%d+),(%-?%d+)$')
  if l then l, t = l + 0, t + 0 end
  if l and l > 0 and l < 9007199254740992 and t < 9007199254740992 and t > -9007199254740992 then
    local period, rate, low = ARGV_i[1] + 0, ARGV_i[2] + 0, 0 - (ARGV_i[6] or 0)
    if l > now then l, write = now, true end
    if t < low then t, write = low, true end
    if t < t_i then
      local m = math.floor((now - l) / period)
      if m < math.ceil((t_i - t) / rate) then l_i, t_i = l + m * period, t + m * rate end
    else
      write = true
    end
  else
    write = true
  end
end

--@ admit
local fits_i = t_i >= (ARGV_i[5] or 0) + 0
if not fits_i then
  local ahead = (ARGV_i[7] or 0) + 0
  if ahead > 0 then fits_i = l_i + math.ceil((ARGV_i[5] - t_i) / ARGV_i[2]) * ARGV_i[1] - now <= ahead end
end

--@ cost
local c_i = (ARGV_i[4] or 0) + 0

--@ charge
if c_i > 0 then
  if l_i == 0 then l_i = now end
  t_i, write = t_i - c_i, true
end

--@ most
local most_i = math.max(0, t_i)
local fits_i = most_i > 0

--@ weigh
local c_i = n

--@ refund
if l_i > 0 and ARGV_i[4] + 0 > 0 then
  local since, more = l_i - ARGV_i[5], t_i - ARGV_i[7] -- refills and their tokens, if nobody came behind
  local refills = math.floor(since / ARGV_i[1])
  local last = since >= 0 and refills * ARGV_i[1] == since and (refills + 0.0) * ARGV_i[2] == more and ARGV_i[7] + 0 < ARGV_i[3] + 0
  if now >= ARGV_i[9] + 0 then last = since == 0 and (last or t_i >= ARGV_i[8] + 0) end
  if last then
    t_i, write = t_i + ARGV_i[4], true
    if t_i >= ARGV_i[3] + 0 then l_i, t_i = 0, ARGV_i[3] + 0 end
  end
end

--@ store
local text_i, left_i = '', 1
if l_i > 0 then
  text_i = string.format('t%.0f,%.0f', l_i, t_i)
  left_i = l_i + math.ceil((ARGV_i[3] - t_i) / ARGV_i[2]) * ARGV_i[1] - now
end

--@ reply
fits_i and l_i or -1 - l_i, l_i > 0 and t_i or 0
