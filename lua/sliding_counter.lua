-- sliding-counter: two counts, of the window that now is in and of the one before,
-- which weighs as much as is still in sight. Windows begin at multiples of the period.
--
-- Letter: d
--
-- Segment: "d", the start of the current window in microseconds, its length, its count
-- and that of the window before, after a comma each. Empty: unused.
--
-- Arguments of take:   period limit cost
-- Arguments of upto:   period limit
-- Arguments of refund: period units last
-- Arguments of credit: period units
--   cost   how many units are taken (0 peeks)
--   units  how many to give back
--   last   the end of the window of the charge, inclusive
-- Reply: the count of the current window, or -1 - count if the cost does not fit; that of
-- the window before.

--@ load
local start_i, current_i, previous_i, used_i = 0, 0, 0, 0
if s_i and s_i ~= '' then
  local period = ARG.period + 0
  local start, length, current, previous = string.match(s_i, '^d(%d+),(%d+),(%d+),(%d+)$')
  if start then start, length, current, previous = start + 0, length + 0, current + 0, previous + 0 end
  if start and start < 9007199254740992 and length > 0 and length < 9007199254740992 and start % length == 0
    and current < 1099511627776 and previous < 1099511627776 and current + previous > 0
    and (previous == 0 or start > 0) and not string.find(s_i, ',0%d') then
    local elapsed = now % period
    if length ~= period or start > now then -- each belongs to the window in which its own ends, as of now
      local index, age, before = math.floor(now / period), 0, 0
      if start > now or current > 0 and math.floor((start + length - 1) / period) > index then write = true end
      if start + length - 1 < now then age = index - math.floor((start + length - 1) / period) end
      if previous > 0 and start - 1 < now then before = index - math.floor((start - 1) / period) end
      local counts = { 0, 0, 0 }
      age, before = math.min(age, 2) + 1, math.min(before, 2) + 1
      counts[age] = current
      counts[before] = counts[before] + previous
      current, previous = counts[1], counts[2]
    else
      local age = math.floor(now / period) - start / period
      if age == 1 then
        current, previous = 0, current
      elseif age > 1 then
        current, previous = 0, 0
      end
    end
    if current + previous > 0 then start_i, current_i, previous_i = now - elapsed, current, previous end
    local left = period - elapsed -- used = current + ceil(previous * left / period), where a product may be inexact
    if (previous + 0.0) * left < 9007199254740992 then
      used_i = current + math.ceil(previous * left / period)
    else -- long division, in digits to the base of 128
      local q, r, place = 0, 0, 1
      while place * 128 <= previous do place = place * 128 end
      while place >= 1 do
        r = r * 128 + math.floor(previous / place) % 128 * left
        q, r, place = q * 128 + math.floor(r / period), r % period, place / 128
      end
      used_i = current + q + (r > 0 and 1 or 0)
    end
  else
    write = true
  end
end

--@ admit
fits_i = (ARG.cost or 0) + 0 == 0 or used_i + ARG.cost <= ARG.limit + 0

--@ most
local most_i = math.max(0, ARG.limit - used_i)
local fits_i = most_i > 0

--@ cost
local cost_i = (ARG.cost or 0) + 0

--@ times
local times_i = cost_i > 0 and math.floor((ARG.limit - used_i) / cost_i) or n

--@ costs
cost_i = cost_i * times

--@ weigh
local cost_i = taken

--@ charge
if cost_i > 0 then start_i, current_i, write = now - now % ARG.period, current_i + cost_i, true end

--@ refund
if ARG.units + 0 > 0 and current_i + previous_i > 0 then
  local period = ARG.period + 0 -- of which the window that counts the charge is one from first to last
  local first, last = math.min(at, now), math.min(ARG.last + 0, now)
  first, last = first - first % period, last - last % period
  if previous_i > 0 and first < start_i and start_i - period <= last then
    previous_i, write = previous_i - math.min(previous_i, ARG.units + 0), true
  elseif current_i > 0 and last == start_i then
    current_i, write = current_i - math.min(current_i, ARG.units + 0), true
  end
  if current_i + previous_i == 0 then start_i = 0 end
end

--@ credit
if current_i + previous_i > 0 then
  local back = math.min(ARG.units + 0, current_i)
  current_i, previous_i, write = current_i - back, previous_i - math.min(ARG.units - back, previous_i), true
  if current_i + previous_i == 0 then start_i = 0 end
end

--@ store
local text_i, left_i = '', 1
if current_i + previous_i > 0 then
  local low = start_i % 1000000000
  if low < start_i and current_i < 2147483648 and previous_i < 2147483648 then -- the same in half the time
    text_i = string.format('d%d%09d,%s,%d,%d', (start_i - low) / 1000000000, low, TEXT.period, current_i, previous_i)
  else
    text_i = string.format('d%.0f,%s,%.0f,%.0f', start_i, TEXT.period, current_i, previous_i)
  end
  left_i = start_i - now + (current_i > 0 and 2 or 1) * ARG.period
end

--@ reply
fits_i and current_i or -1 - current_i, previous_i
