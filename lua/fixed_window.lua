-- fixed-window: counts units in windows that do not overlap.
--
-- Letter: f
--
-- Segment: "f", the units counted, a comma, the end of the window in microseconds.
-- Empty: unused. The units may be more than the rate, where other numbers count on the key.
--
-- Arguments of take:   cost rate period aligned start end next
-- Arguments of upto:   rate period aligned start end next
-- Arguments of refund: units period aligned start end next last
-- Arguments of credit: units period aligned start end next
--   cost     how many units are taken (0 peeks)
--   rate     the most units in one window
--   period   of windows that begin with the first hit; 0 otherwise
--   aligned  of windows that begin at its multiples since the epoch; 0 otherwise
--   start    to end, exclusive, is a window of the calendar, and next the end of the one
--            after it: where the caller guesses the server's time to be; 0 otherwise
--   units    how many units to give back
--   last     the latest end of a window that has the charge
-- If the time is in neither window of the calendar, nothing is done, and the reply is
-- the time alone: a caller that asks again can tell the windows around it.
-- Reply: the units counted, or -1 - units if the cost does not fit; then the end of
-- the window, or 0.

--@ load
local end_i, count_i, latest_i = 0, 0, now + ARG.period
do
  local aligned, next = (ARG.aligned or 0) + 0, (ARG.next or 0) + 0
  if aligned > 0 then
    latest_i = now - now % aligned + aligned
  elseif next > 0 then
    if now < ARG.start + 0 or now >= next then return { now } end
    latest_i = ARG.end + 0
    if now >= latest_i then latest_i = next end
  end
end
if s_i and s_i ~= '' then
  local count, ends = string.match(s_i, '^f(%d+),(%d+)$')
  count, ends = (count or 0) + 0, (ends or 0) + 0
  if count == 0 or count >= 1099511627776 or ends == 0 or ends >= 9007199254740992 then
    write = true
  elseif ends > now then
    end_i, count_i = ends, count
    if ends > latest_i then end_i, write = latest_i, true end
  end
end

--@ admit
fits_i = count_i + ARG.cost <= ARG.rate + 0 or ARG.cost + 0 == 0

--@ most
local most_i = math.max(0, ARG.rate - count_i)
local fits_i = most_i > 0

--@ cost
local cost_i = ARG.cost + 0

--@ times
local times_i = cost_i > 0 and math.floor((ARG.rate - count_i) / cost_i) or n

--@ costs
cost_i = cost_i * times

--@ weigh
local cost_i = taken

--@ charge
if cost_i > 0 then
  if count_i == 0 then end_i = latest_i end
  count_i, write = count_i + cost_i, true
end

--@ refund
if count_i > 0 and ARG.units + 0 > 0 and at <= end_i and end_i <= ARG.last + 0 then
  count_i, write = count_i - math.min(ARG.units + 0, count_i), true
  if count_i == 0 then end_i = 0 end
end

--@ credit
if count_i > 0 then
  count_i, write = count_i - math.min(ARG.units + 0, count_i), true
  if count_i == 0 then end_i = 0 end
end

--@ store
local text_i, left_i = '', 1
if count_i > 0 then
  local low = end_i % 1000000000
  if low < end_i and count_i < 2147483648 then -- the same in half the time
    text_i = string.format('f%d,%d%09d', count_i, (end_i - low) / 1000000000, low)
  else
    text_i = string.format('f%.0f,%.0f', count_i, end_i)
  end
  left_i = end_i - now
end

--@ reply
fits_i and count_i or -1 - count_i, end_i
