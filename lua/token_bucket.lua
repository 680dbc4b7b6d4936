-- token-bucket: refilled in steps. All tokens of a period arrive together, counted from
-- the first use after the bucket was full.
--
-- Letter: b
--
-- Segment: "b", the instant of the last refill, in microseconds, and after a comma each the
-- tokens, which are negative in debt and while charges wait, and how long after that instant
-- the bucket is full by all numbers that have charged it. Empty: unused, which is full.
-- There may be more tokens than the burst, where other numbers count on the key.
--
-- Arguments of take:   period rate burst cost need low wait
-- Arguments of upto:   period rate burst low owed
-- Arguments of refund: period rate burst low back charged_last charged_tokens queue turn
-- Arguments of credit: period rate burst low back
--   cost     how many tokens are taken (0 peeks)
--   need     how many must be there for that: more than burst if it never fits
--   low      how far below zero the rules allow
--   owed     how far below zero there are units
--   wait     how long before the refill that makes it fit it may be charged
--   back     how many tokens the charge had taken; in credit, how many to give back
--   charged  the state that the charge led to
--   queue    how many tokens there are at least while nobody is waiting for a turn
--   turn     when the turn of a charge that had to wait came, or 0
-- Most limits have neither debt nor reservations: their last arguments are zeros.
-- Reply: the instant of the last refill, or -1 - that if the cost does not fit; then the
-- tokens. Both are 0 if the bucket is full.

--@ load
local last_i, tokens_i, full_i, have_i = 0, ARG.burst + 0, 0, ARG.burst + 0 -- have: not more than the burst
if s_i and s_i ~= '' then
  local last, tokens, gap = string.match(s_i, '^b(%d+),(%-?%d+),(%d+)$')
  if last then last, tokens, gap = last + 0, tokens + 0, gap + 0 end
  if last and last > 0 and last < 9007199254740992 and gap <= 2251799813685248 and last + gap < 9007199254740992
    and tokens < 9007199254740992 and tokens > -9007199254740992 then
    local period, rate, low = ARG.period + 0, ARG.rate + 0, 0 - (ARG.low or 0)
    local full = last + gap
    if last > now then -- the clock has stepped back
      local back = now
      if last - now >= period then -- refills after the step are 7 us earlier than those before it, so that a refund can tell
        local ahead = (last - 7 - now) % period
        if ahead < 0 then ahead = ahead + period end -- a quotient that was rounded up
        back = now - (period - ahead) % period
        if back < 1 then back = now end
      end
      full, last, write = full - (last - back), back, true
    end
    if tokens < low then tokens, write = low, true end
    if full > now then
      if tokens < have_i then
        local m = math.floor((now - last) / period)
        last = last + m * period
        if m < math.ceil((have_i - tokens) / rate) then tokens = tokens + m * rate else tokens = have_i end
      end
      last_i, tokens_i, full_i, have_i = last, tokens, full, math.min(tokens, have_i)
    end
  else
    write = true
  end
end

--@ admit
fits_i = have_i >= (ARG.need or 0) + 0
if not fits_i then
  local wait = (ARG.wait or 0) + 0
  if wait > 0 then fits_i = last_i + math.ceil((ARG.need - have_i) / ARG.rate) * ARG.period - now <= wait end
end

--@ most
local most_i = math.max(0, have_i + ARG.owed)
local fits_i = most_i > 0

--@ cost
local cost_i = (ARG.cost or 0) + 0

--@ times
local times_i = n
if cost_i > 0 then
  local wait, least = (ARG.wait or 0) + 0, ARG.need + 0 -- tokens that there must be, less what will be refilled within wait
  if wait > 0 then least = least - math.floor((wait + now - (have_i < ARG.burst + 0 and last_i or now)) / ARG.period) * ARG.rate end
  times_i = math.floor((have_i - least) / cost_i) + 1
end

--@ costs
cost_i = cost_i * times

--@ weigh
local cost_i = taken

--@ charge
if cost_i > 0 then
  if tokens_i >= ARG.burst + 0 then last_i = now end
  tokens_i, write = have_i - cost_i, true
end

--@ refund
if have_i < ARG.burst + 0 and ARG.back + 0 > 0 then
  local since, more = last_i - ARG.charged_last, tokens_i - ARG.charged_tokens -- refills, and their tokens if nobody came behind
  if since < 0 and since > 0 - ARG.period and not (since % 7 == 0 and since >= -112) then since = 0 end
  local refills = math.floor(since / ARG.period)
  local last = since >= 0 and refills * ARG.period == since and (refills + 0.0) * ARG.rate == more
  if now >= ARG.turn + 0 then last = since == 0 and (last or tokens_i >= ARG.queue + 0) end
  if last then
    if full_i <= last_i + math.ceil((ARG.burst - tokens_i) / ARG.rate) * ARG.period then full_i = 0 end -- it is full by no others later
    tokens_i, write = math.min(tokens_i + ARG.back, ARG.burst + 0), true
  end
end

--@ credit
if have_i < ARG.burst + 0 then
  if full_i <= last_i + math.ceil((ARG.burst - tokens_i) / ARG.rate) * ARG.period then full_i = 0 end -- as in refund
  tokens_i, write = math.min(tokens_i + ARG.back, ARG.burst + 0), true
end

--@ store
local text_i, left_i = '', 1
if last_i > 0 then
  local full = math.max(full_i, last_i + math.ceil(math.max(0, ARG.burst - tokens_i) / ARG.rate) * ARG.period)
  if full > now then
    local low, gap = last_i % 1000000000, full - last_i
    if low < last_i and tokens_i < 2147483648 and tokens_i > -2147483648 and gap < 2147483648 then -- the same in half the time
      text_i = string.format('b%d%09d,%d,%d', (last_i - low) / 1000000000, low, tokens_i, gap)
    else
      text_i = string.format('b%.0f,%.0f,%.0f', last_i, tokens_i, gap)
    end
    left_i = full - now
  end
end

--@ reply
fits_i and (tokens_i < ARG.burst + 0 and last_i or 0) or -1 - (tokens_i < ARG.burst + 0 and last_i or 0), last_i > 0 and tokens_i < ARG.burst + 0 and tokens_i or 0
