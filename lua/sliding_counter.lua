-- sliding-counter: two counts, of the window that now is in and of the one before,
-- which weighs as much as is still in sight. Windows begin at multiples of the period.
--
-- Letter: c
--
-- Segment: "c", the start of the current window in microseconds, its count and that of
-- the window before, after a comma each. Empty: unused.
--
-- Arguments: 1 period | 2 limit | 3 cost; in refund, the units to give back; not in upto
-- Reply: the start, or -1 - start if the cost does not fit; the two counts.

--@ load
local start_i, current_i, previous_i, used_i = 0, 0, 0, 0
if s_i and s_i ~= '' then
  local period, limit = ARGV_i[1] + 0, ARGV_i[2] + 0
  local start, current, previous = string.match(s_i, '^c(%d+),(%d+),(%d+)$')
  if start then start, current, previous = start + 0, current + 0, previous + 0 end
  if start and start < 9007199254740992 and current < 9007199254740992 and previous < 9007199254740992
    and current + previous > 0 and not string.find(s_i, ',0%d') then
    local elapsed = now % period
    local age = math.floor(now / period) - math.floor(start / period)
    if age < 0 then -- what lies ahead of the clock counts as of now
      current, previous, write = math.min(current, limit) + math.min(previous, limit), 0, true
    elseif age == 1 then
      current, previous = 0, current
    elseif age > 1 then
      current, previous = 0, 0
    end
    if current > limit then current, write = limit, true end
    if previous > limit then previous, write = limit, true end
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
local fits_i = (ARGV_i[3] or 0) + 0 == 0 or used_i + ARGV_i[3] <= ARGV_i[2] + 0

--@ cost
local cost_i = (ARGV_i[3] or 0) + 0

--@ charge
if cost_i > 0 then start_i, current_i, write = now - now % ARGV_i[1], current_i + cost_i, true end

--@ most
local most_i = math.max(0, ARGV_i[2] - used_i)
local fits_i = most_i > 0

--@ weigh
local cost_i = n

--@ refund
if current_i > 0 and ARGV_i[3] + 0 > 0 and start_i == at - at % ARGV_i[1] then
  current_i, write = current_i - math.min(current_i, ARGV_i[3] + 0), true
  if current_i + previous_i == 0 then start_i = 0 end
end

--@ store
local text_i, left_i = '', 1
if current_i + previous_i > 0 then
  text_i = string.format('c%.0f,%.0f,%.0f', start_i, current_i, previous_i)
  left_i = start_i - now + (current_i > 0 and 2 or 1) * ARGV_i[1]
end

--@ reply
fits_i and start_i or -1 - start_i, current_i, previous_i
