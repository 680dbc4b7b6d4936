-- sliding-log: the time of each unit, which counts until it is as old as the period.
--
-- Letter: x
--
-- Segment: "x", the newest time in microseconds, how many units there are, the oldest
-- time and how many were taken then; and from there on, for each entry, how long after
-- the one before it was and how many units were taken then; with a comma between any
-- two. Empty: unused.
--
-- Arguments of take:   period limit cost
-- Arguments of upto:   period limit
-- Arguments of refund: period units
-- Arguments of credit: period units
--   cost   how many units are taken (0 peeks)
--   units  how many to give back
-- Reply: how many units are in use, or -1 - that if the cost does not fit; the newest
-- time; the time of the entry that must go before the cost fits, 0 if it fits; the oldest time.
--
-- The text of a full log is long, and every other call waits for it. So a decision reads
-- what has expired, or what must go before the cost fits: it cuts the front, appends to
-- the end, and copies the rest. What it does not read it does not check either: when it
-- comes to a part that is wrong, it discards the log.

--@ load
local newest_i, used_i, oldest_i, count_i, from_i, tail_i, full_i = 0, 0, 0, 0, 1, '', 0
if s_i and s_i ~= '' then
  local dead, find = now - ARG.period, string.find
  local _, e, newest, used, oldest, count = find(s_i, '^x([1-9]%d*),([1-9]%d*),([1-9]%d*),([1-9]%d*)')
  local ok, span, more = e, 0, 0 -- from the oldest to the newest, and how many units after it
  if ok then
    newest, used, oldest, count = newest + 0, used + 0, oldest + 0, count + 0
    span, more = newest - oldest, used - count
    ok = newest < 9007199254740992 and used <= 1000 and span >= 0 and more >= 0 and (span == 0) == (e == #s_i) and (more == 0) == (e == #s_i)
  end
  if ok and newest > dead then
    while ok and oldest <= dead do
      local _, to, gap, n = find(s_i, '^,([1-9]%d*),([1-9]%d*)', e + 1)
      ok = to
      if ok then
        used, span, more, e = more, span - gap, more - n, to
        oldest, count = newest - span, used - more
        ok = span >= 0 and more >= 0 and (span == 0) == (e == #s_i) and (more == 0) == (e == #s_i)
      end
    end
    newest_i, used_i, oldest_i, count_i, from_i = newest, used, oldest, count, e and e + 1
    if ok and newest > now then -- what lies ahead of the clock counts as of now
      newest_i, write = now, true
      if oldest >= now then oldest_i, count_i, from_i = now, used, #s_i + 1 end
      local t = oldest
      while ok and t < now do
        local _, to, gap, n = find(s_i, '^,([1-9]%d*),([1-9]%d*)', e + 1)
        ok = to and gap + 0 <= newest - t and more > 0
        if ok and t + gap >= now then
          s_i, from_i = string.sub(s_i, from_i, e) .. string.format(',%.0f,%.0f', now - t, more), 1
          break
        end
        if ok then t, more, e = t + gap, more - n, to end
      end
    end
  end
  if not ok then newest_i, used_i, oldest_i, count_i, write = 0, 0, 0, 0, true end
end

--@ admit
fits_i = used_i + (ARG.cost or 0) <= ARG.limit + 0 or (ARG.cost or 0) + 0 == 0
if not fits_i and used_i > 0 then
  local must = used_i + ARG.cost - ARG.limit -- so many units must go before the cost fits
  if must >= used_i then
    full_i = newest_i
  else
    local e = from_i - 1
    full_i, must = oldest_i, must - count_i
    while must > 0 do
      local _, to, gap, n = string.find(s_i, '^,([1-9]%d*),([1-9]%d*)', e + 1)
      if not to or gap + 0 > newest_i - full_i then -- discarded, and the cost is within the limit
        newest_i, used_i, oldest_i, count_i, full_i, write, fits_i = 0, 0, 0, 0, 0, true, true
        break
      end
      full_i, must, e = full_i + gap, must - n, to
    end
  end
end

--@ most
local most_i = math.max(0, ARG.limit - used_i)
local fits_i = most_i > 0
if not fits_i then
  local must, e = used_i + 1 - ARG.limit - count_i, from_i - 1 -- so many units after the oldest must go before one fits
  full_i = oldest_i
  while must > 0 do
    local _, to, gap, n = string.find(s_i, '^,([1-9]%d*),([1-9]%d*)', e + 1)
    if not to or gap + 0 > newest_i - full_i then -- discarded
      newest_i, used_i, oldest_i, count_i, full_i, write = 0, 0, 0, 0, 0, true
      most_i, fits_i = ARG.limit + 0, true
      break
    end
    full_i, must, e = full_i + gap, must - n, to
  end
end

--@ cost
local cost_i = (ARG.cost or 0) + 0

--@ times
local times_i = cost_i > 0 and math.floor((ARG.limit - used_i) / cost_i) or n

--@ costs
cost_i = cost_i * times

--@ weigh
local cost_i = taken

--@ charge
if cost_i > 0 then
  if newest_i < now and used_i > 0 then
    tail_i = string.format(now - newest_i < 2147483648 and ',%d,%d' or ',%.0f,%.0f', now - newest_i, cost_i)
  elseif used_i == count_i then
    oldest_i, count_i = now, count_i + cost_i
  else -- to the newest entry, whose count is the last number
    local p, n = string.match(s_i, '(),([1-9]%d*)$', -5)
    if p and p > from_i and n + 0 <= used_i - count_i then
      s_i, from_i, tail_i = string.sub(s_i, from_i, p), 1, string.format('%.0f', n + cost_i)
    else
      used_i, oldest_i, count_i = 0, now, cost_i
    end
  end
  newest_i, used_i, write = now, used_i + cost_i, true
end

--@ refund
if ARG.units + 0 > 0 and used_i > 0 and oldest_i <= at then
  local at = math.min(at, newest_i) -- the clock may have stepped back since
  -- Look for the entry at t, from p to e in the text: gap after the one before, n units.
  local t, p, e, gap, n, ok = oldest_i, from_i, from_i - 1, 0, count_i, true
  if (newest_i - at) * 4 < at - oldest_i then -- from the end, where it most often is; a step back takes four times as long
    t, e = newest_i, #s_i
    while ok and t > oldest_i do
      local first = math.max(from_i, e - 23) -- no entry is longer
      p, gap, n = string.match(string.sub(s_i, first, e), '(),([1-9]%d*),([1-9]%d*)$')
      ok = p and t - gap >= oldest_i
      if ok then
        p = first + p - 1
        if t <= at then break end
        t, e = t - gap, p - 1
      end
    end
  else
    while ok and t < at do
      local _, to, g, units = string.find(s_i, '^,([1-9]%d*),([1-9]%d*)', e + 1)
      ok = to and g + 0 <= newest_i - t
      if ok then t, p, e, gap, n = t + g, e + 1, to, g, units end
    end
  end
  if ok and t == at then
    local left = math.max(0, n - ARG.units)
    local next_gap, next_count, after = string.match(s_i, '^,([1-9]%d*),([1-9]%d*)()', e + 1)
    used_i, write = used_i - (n - left), true
    ok = used_i >= 0 and (after or used_i == 0 or e == #s_i)
    if not ok or used_i == 0 then -- nothing is left
    elseif left > 0 and t == oldest_i then
      count_i = left
    elseif left > 0 then
      s_i, from_i = string.sub(s_i, from_i, p) .. gap .. string.format(',%.0f', left) .. string.sub(s_i, e + 1), 1
    elseif not after then
      newest_i, s_i = newest_i - gap, string.sub(s_i, 1, p - 1)
    elseif t == oldest_i then
      oldest_i, count_i, from_i = oldest_i + next_gap, next_count + 0, after
    else
      s_i, from_i = string.sub(s_i, from_i, p) .. string.format('%.0f,', gap + next_gap) .. next_count .. string.sub(s_i, after), 1
    end
  end
  if not ok then used_i, write = 0, true end
end

--@ credit
if used_i > 0 then
  local units, e, ok = math.min(ARG.units + 0, used_i), #s_i, true
  write = true
  while ok and units > 0 and used_i > count_i do -- the newest of those after the oldest
    local first = math.max(from_i, e - 23) -- no entry is longer
    local p, gap, n = string.match(string.sub(s_i, first, e), '(),([1-9]%d*),([1-9]%d*)$')
    ok = p and newest_i - gap >= oldest_i and n + 0 <= used_i - count_i
    if ok and n + 0 > units then
      s_i = string.sub(s_i, 1, first + p - 2) .. string.format(',%s,%.0f', gap, n - units)
      used_i, units, e = used_i - units, 0, #s_i
    elseif ok then
      used_i, units, newest_i, e = used_i - n, units - n, newest_i - gap, first + p - 2
    end
  end
  if ok then
    s_i = string.sub(s_i, 1, e)
    ok = used_i > count_i or newest_i == oldest_i and e < from_i
    used_i = used_i - units -- of the oldest, if any are left to give back
    count_i = math.min(count_i, used_i)
  end
  if not ok then used_i = 0 end
end

--@ store
local text_i, left_i = '', 1
if used_i > 0 then
  local newest, oldest = newest_i % 1000000000, oldest_i % 1000000000
  if newest < newest_i and oldest < oldest_i then -- the same in half the time
    text_i = string.format('x%d%09d,%d,%d%09d,%d', (newest_i - newest) / 1000000000, newest, used_i, (oldest_i - oldest) / 1000000000, oldest, count_i)
  else
    text_i = string.format('x%.0f,%.0f,%.0f,%.0f', newest_i, used_i, oldest_i, count_i)
  end
  if used_i > count_i then text_i = text_i .. string.sub(s_i, from_i) .. tail_i end
  left_i = newest_i + ARG.period - now
end

--@ reply
fits_i and used_i or -1 - used_i, newest_i, full_i, oldest_i
