-- sliding-log: the time of each unit, which counts until it is as old as the period.
--
-- Letter: x
--
-- Segment: "x", the newest time in microseconds and how many units were taken then; and
-- from there into the past, for each entry, how long before the next it was and how
-- many units were taken then; with a comma between any two. Empty: unused.
--
-- Arguments: 1 period | 2 limit | 3 cost; 1 in upto; in refund, the units to give back
-- Reply: how many units are in use, or -1 - that if the cost does not fit; the newest
-- time; the time of the entry that must go before the cost fits, 0 if it fits.
--
-- The text is read once, from the newest, and no table is made of it: what is older
-- than the newest is cut where it has expired or the limit leaves no room for it, and a
-- new entry is put before it.

--@ load
local time_i, count_i, older_i, used_i, full_i = 0, 0, '', 0, 0
if s_i and s_i ~= '' then
  local dead, limit = now - ARGV_i[1], ARGV_i[2] + 0
  local room = limit - (ARGV_i[3] or 0)
  local _, e, t, n = string.find(s_i, '^x([1-9]%d*),([1-9]%d*)')
  local ok = t and t + 0 < 9007199254740992 and n + 0 < 9007199254740992
  if ok then
    t, n = t + 0, n + 0
    local newest, count, used, full, entries = math.min(t, now), 0, 0, 0, 1
    local ahead, first, from, to, cut = t > now, '', e + 1, e, ''
    if newest > dead then
      if ahead or n > limit then write = true end -- what lies ahead counts as of now; the newest are kept
      count = math.min(n, limit)
      used = count
      if used > room then full = newest end
    end
    local length, find = #s_i, string.find
    while e < length do
      local p, gap = e + 1, nil
      _, e, gap, n = find(s_i, '^,([1-9]%d*),([1-9]%d*)', p)
      if not e or entries == 1000 then ok = false break end
      t, n, entries = t - gap, n + 0, entries + 1
      if t <= 0 or n >= 9007199254740992 then ok = false break end
      if t > dead then
        local whole = used + n <= limit
        if not whole then n, write = limit - used, true end
        if ahead and t >= now then
          used = used + n
          count, from, to = used, e + 1, e
        elseif n > 0 then
          used = used + n
          if ahead then ahead, first, from = false, string.format(',%.0f', now - t), p + 1 + #gap end
          if whole then to = e else to, cut = p + 1 + #gap, string.format('%.0f', n) end
        end
        if full == 0 and used > room then full = math.min(t, now) end
      end
    end
    if ok and count > 0 then
      time_i, count_i, used_i, full_i = newest, count, used, full
      older_i = first .. string.sub(s_i, from, to) .. cut
    end
  end
  if not ok then write = true end
end

--@ admit
local fits_i = used_i + (ARGV_i[3] or 0) <= ARGV_i[2] + 0

--@ cost
local cost_i = (ARGV_i[3] or 0) + 0

--@ charge
if cost_i > 0 then
  if count_i > 0 and time_i < now then
    older_i = string.format(',%.0f,%.0f', now - time_i, count_i) .. older_i
    count_i = 0
  end
  time_i, count_i, used_i, write = now, count_i + cost_i, used_i + cost_i, true
end

--@ most
local most_i = ARGV_i[2] - used_i
local fits_i = most_i > 0

--@ weigh
local cost_i = n

--@ refund
do
  local units, t, p = ARGV_i[3] + 0, time_i, 1
  if units > 0 and count_i > 0 and t == at then
    count_i, write = count_i - math.min(units, count_i), true
    if count_i == 0 and older_i ~= '' then -- the next is the newest
      local gap, n, older = string.match(older_i, '^,(%d+),(%d+)(.*)$')
      time_i, count_i, older_i = t - gap, n + 0, older
    end
  end
  while units > 0 and t > at and p <= #older_i do
    local _, e, gap, n = string.find(older_i, '^,(%d+),(%d+)', p)
    t = t - gap
    if t == at then
      n, write = n - math.min(units, n + 0), true
      local _, f, next_gap = string.find(older_i, '^,(%d+)', e + 1)
      if n > 0 then
        older_i = string.sub(older_i, 1, p) .. gap .. string.format(',%.0f', n) .. string.sub(older_i, e + 1)
      elseif next_gap then
        older_i = string.sub(older_i, 1, p) .. string.format('%.0f', gap + next_gap) .. string.sub(older_i, f + 1)
      else
        older_i = string.sub(older_i, 1, p - 1)
      end
    end
    p = e + 1
  end
end

--@ store
local text_i, left_i = '', 1
if count_i > 0 then
  text_i = string.format('x%.0f,%.0f', time_i, count_i) .. older_i
  left_i = time_i + ARGV_i[1] - now
end

--@ reply
fits_i and used_i or -1 - used_i, time_i, full_i
