-- token-bucket: refilled in steps. All tokens of a period arrive together, counted from
-- the first use after the bucket was full.
--
-- Letter: t
--
-- Segment: "t", the instant of the last refill, in microseconds, ",", and the tokens,
-- which are negative in debt and while charges wait. Empty: unused, which is full.
--
-- Arguments of take:   period rate burst cost need low wait
-- Arguments of upto:   period rate burst low owed
-- Arguments of refund: period rate burst low back charged_last charged_tokens queue turn
--   cost     how many tokens are taken (0 peeks)
--   need     how many must be there for that: more than burst if it never fits
--   low      how far below zero the rules allow
--   owed     how far below zero there are units
--   wait     how long before the refill that makes it fit it may be charged
--   back     how many tokens the charge had taken
--   charged  the state that the charge led to
--   queue    how many tokens there are at least while nobody is waiting for a turn
--   turn     when the turn of a charge that had to wait came, or 0
-- Most limits have neither debt nor reservations: their last arguments are zeros.
-- Reply: the instant of the last refill, or -1 - that if the cost does not fit; then the
-- tokens. Both are 0 if unused.

--@ load
local last_i, tokens_i = 0, ARG.burst + 0
if s_i and s_i ~= '' then
  local last, tokens = string.match(s_i, '^t(%d+),(%-?%d+)$')
  if last then last, tokens = last + 0, tokens + 0 end
  if last and last > 0 and last < 9007199254740992 and tokens < 9007199254740992 and tokens > -9007199254740992 then
    local period, rate, low = ARG.period + 0, ARG.rate + 0, 0 - (ARG.low or 0)
    if last > now then last, write = now, true end
    if tokens < low then tokens, write = low, true end
    if tokens < tokens_i then
      local m = math.floor((now - last) / period)
      if m < math.ceil((tokens_i - tokens) / rate) then last_i, tokens_i = last + m * period, tokens + m * rate end
    else
      write = true
    end
  else
    write = true
  end
end

--@ admit
fits_i = tokens_i >= (ARG.need or 0) + 0
if not fits_i then
  local wait = (ARG.wait or 0) + 0
  if wait > 0 then fits_i = last_i + math.ceil((ARG.need - tokens_i) / ARG.rate) * ARG.period - now <= wait end
end

--@ most
local most_i = math.max(0, tokens_i + ARG.owed)
local fits_i = most_i > 0

--@ cost
local cost_i = (ARG.cost or 0) + 0

--@ times
local times_i = n
if cost_i > 0 then
  local wait, least = (ARG.wait or 0) + 0, ARG.need + 0 -- tokens that there must be, less what will be refilled within wait
  if wait > 0 then least = least - math.floor((wait + now - (last_i > 0 and last_i or now)) / ARG.period) * ARG.rate end
  times_i = math.floor((tokens_i - least) / cost_i) + 1
end

--@ costs
cost_i = cost_i * times

--@ weigh
local cost_i = taken

--@ charge
if cost_i > 0 then
  if last_i == 0 then last_i = now end
  tokens_i, write = tokens_i - cost_i, true
end

--@ refund
if last_i > 0 and ARG.back + 0 > 0 then
  local since, more = last_i - ARG.charged_last, tokens_i - ARG.charged_tokens -- refills, and their tokens if nobody came behind
  if since < 0 and since > 0 - ARG.period then since = 0 end
  local refills = math.floor(since / ARG.period)
  local last = since >= 0 and refills * ARG.period == since and (refills + 0.0) * ARG.rate == more
  if now >= ARG.turn + 0 then last = since == 0 and (last or tokens_i >= ARG.queue + 0) end
  if last then
    tokens_i, write = tokens_i + ARG.back, true
    if tokens_i >= ARG.burst + 0 then last_i, tokens_i = 0, ARG.burst + 0 end
  end
end

--@ store
local text_i, left_i = '', 1
if last_i > 0 then
  local low = last_i % 1000000000
  if low < last_i and tokens_i < 2147483648 and tokens_i > -2147483648 then -- the same in half the time
    text_i = string.format('t%d%09d,%d', (last_i - low) / 1000000000, low, tokens_i)
  else
    text_i = string.format('t%.0f,%.0f', last_i, tokens_i)
  end
  left_i = last_i + math.ceil((ARG.burst - tokens_i) / ARG.rate) * ARG.period - now
end

--@ reply
fits_i and last_i or -1 - last_i, last_i > 0 and tokens_i or 0
