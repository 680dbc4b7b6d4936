-- sliding-window: counts by sub-windows, which begin at multiples of their width. A
-- sub-window counts in full until all of it is older than the period.
--
-- Letter: s
--
-- Segment: "s", the start of the newest sub-window that counts anything, in
-- microseconds, and after a comma each its count and those of the sub-windows before,
-- down to the oldest that counts anything. Empty: unused.
--
-- Arguments: 1 width of a sub-window | 2 sub-windows in a period | 3 limit | 4 cost
-- In upto the cost is 1, in refund the units to give back.
-- Reply: the start, or -1 - start if the cost does not fit; how many units are in use;
-- how many sub-windows before the newest is the one that must go before the cost fits.
--
-- The text is read once, from the newest. What is older than the newest is never
-- taken apart, but cut where it has expired or the limit leaves no room for it.

--@ load
local start_i, count_i, older_i, used_i, full_i = 0, 0, '', 0, 0
if s_i and s_i ~= '' then
  local w, last, limit = ARGV_i[1] + 0, ARGV_i[2] + 0, ARGV_i[3] + 0
  local room = limit - (ARGV_i[4] or 0)
  local start, p = string.match(s_i, '^s(%d+)(),[1-9]')
  local ok = start and start + 0 < 9007199254740992 and not string.find(s_i, ',0%d')
  if ok then
    local at, newest = math.floor(start / w), math.floor(now / w) -- at: of each in turn
    local oldest, least = newest - last, at - last
    if at > newest then write = true else newest = at end -- what lies ahead of the clock counts as of now
    local used, count, full, from, to, cut, text = 0, 0, 0, p, p - 1, '', nil
    while ok and p <= #s_i do
      local _, e
      _, e, text = string.find(s_i, '^,(%d+)', p)
      local n = text and text + 0
      if not n or n >= 9007199254740992 or at < least then
        ok = false
      elseif at >= oldest then
        local whole = used + n <= limit
        if not whole then n, write = limit - used, true end -- the newest are kept
        used = used + n
        if used > room and used - n <= room then full = math.max(0, newest - at) end
        if at >= newest then
          count, from, to = used, e + 1, e
        elseif whole and n > 0 then
          to = e
        elseif n > 0 then
          to, cut = p, string.format('%.0f', n)
        end
      end
      p, at = (e or 0) + 1, at - 1
    end
    ok = ok and text ~= '0'
    if ok and count > 0 then
      start_i, count_i, used_i, full_i = newest * w, count, used, full
      older_i = string.sub(s_i, from, to) .. cut
    end
  end
  if not ok then write = true end
end

--@ admit
local fits_i = used_i + (ARGV_i[4] or 0) <= ARGV_i[3] + 0

--@ cost
local cost_i = (ARGV_i[4] or 0) + 0

--@ charge
if cost_i > 0 then
  local start = now - now % ARGV_i[1]
  if count_i > 0 and start > start_i then
    older_i = string.rep(',0', math.floor((start - start_i) / ARGV_i[1]) - 1) .. string.format(',%.0f', count_i) .. older_i
    count_i = 0
  end
  start_i, count_i, used_i, write = start, count_i + cost_i, used_i + cost_i, true
end

--@ most
local most_i = ARGV_i[3] - used_i
local fits_i = most_i > 0

--@ weigh
local cost_i = n

--@ refund
do
  local w, units = ARGV_i[1] + 0, ARGV_i[4] + 0
  local place = (start_i - (at - at % w)) / w -- sub-windows before the newest
  if place == 0 and count_i > 0 and units > 0 then
    count_i, write = count_i - math.min(units, count_i), true
    while count_i == 0 and older_i ~= '' do -- the next is the newest
      local n, older = string.match(older_i, '^,(%d+)(.*)$')
      start_i, count_i, older_i = start_i - w, n + 0, older
    end
    if start_i < 0 then count_i, older_i = 0, '' end -- nothing is left since the epoch
  elseif place > 0 and units > 0 then
    local p = 1
    while place > 1 and p <= #older_i do
      p, place = string.find(older_i, ',', p + 1, true) or #older_i + 1, place - 1
    end
    local _, e, n = string.find(older_i, '^,(%d+)', p)
    if e and n ~= '0' then
      n, write = n - math.min(units, n + 0), true
      older_i = string.sub(older_i, 1, p) .. string.format('%.0f', n) .. string.sub(older_i, e + 1)
      while string.sub(older_i, -2) == ',0' do older_i = string.sub(older_i, 1, -3) end
    end
  end
end

--@ store
local text_i, left_i = '', 1
if count_i > 0 then
  text_i = string.format('s%.0f,%.0f', start_i, count_i) .. older_i
  left_i = start_i + (ARGV_i[2] + 1) * ARGV_i[1] - now
end

--@ reply
fits_i and start_i or -1 - start_i, used_i, full_i
