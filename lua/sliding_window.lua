-- sliding-window: counts by sub-windows, which begin at multiples of their width. A
-- sub-window counts in full until all of it is older than the period.
--
-- Letter: w
--
-- Segment: "w", the start of the newest sub-window that counts anything, in
-- microseconds, and after a comma each the width, its count and those of the sub-windows
-- before, down to the oldest that counts anything. Empty: unused.
--
-- Arguments of take:   width buckets limit units
-- Arguments of upto:   width buckets limit units
-- Arguments of refund: width buckets limit units last
-- Arguments of credit: width buckets limit units
--   width    of a sub-window
--   buckets  how many sub-windows a period has
--   units    the cost (0 peeks); in upto 1; in refund and credit, how many to give back
--   last     the end of the sub-window of the charge, inclusive
-- Reply: the start, or -1 - start if the units do not fit; how many units are in use;
-- how many sub-windows before the newest is the one that must go before they fit; how many is
-- the oldest.
--
-- The text is read once, from the newest. What is older than the newest is never
-- taken apart, but cut where it has expired. There may be more units than the limit, where
-- other numbers count on the key.

--@ load
local start_i, count_i, older_i, used_i, full_i, oldest_i = 0, 0, '', 0, 0, 0
if s_i and s_i ~= '' then
  local width, buckets = ARG.width + 0, ARG.buckets + 0
  local room = ARG.limit - (ARG.units or 0)
  local start, stored, p = string.match(s_i, '^w(%d+),([1-9]%d*)(),[1-9]')
  start, stored = (start or 0) + 0, (stored or 0) + 0
  local ok = p and start < 9007199254740992 and stored < 9007199254740992 and start % stored == 0 and not string.find(s_i, ',0%d')
  local newest = math.floor(now / width)
  local oldest, most = newest - buckets, 1099511627776 -- more than a sub-window ever counts
  if ok and stored ~= width then -- each count belongs to the sub-window in which its own ends, as of now
    local begins, least, moved, at, n = start, start - buckets * stored, '', nil, 0
    if begins > now or math.floor((begins + stored - 1) / width) > newest then write = true end
    start = math.floor(math.min(begins + stored - 1, now) / width) * width
    for text in string.gmatch(string.sub(s_i, p), ',([^,]*)') do
      local count = string.find(text, '^%d+$') and text + 0
      ok = count and count < most and begins >= least and begins >= 0
      if not ok then break end
      local place = math.floor(math.min(begins + stored - 1, now) / width)
      if count > 0 and place >= oldest then
        if at and place < at then
          moved, n = moved .. string.format(',%.0f', n) .. string.rep(',0', at - place - 1), 0
        end
        at, n = place, n + count
      end
      begins = begins - stored
    end
    ok = ok and string.sub(s_i, -2) ~= ',0'
    s_i, p, most = at and moved .. string.format(',%.0f', n) or '', 1, 9007199254740992
  end
  if ok then
    local at = math.floor(start / width) -- of each in turn
    local least = at - buckets
    if least < 0 then least = 0 end
    if at > newest then write = true else newest = at end -- what lies ahead of the clock counts as of now
    local used, count, full, from, to, last, text = 0, 0, 0, p, p - 1, 0, nil
    while ok and p <= #s_i do
      local _, e
      _, e, text = string.find(s_i, '^,(%d+)', p)
      local n = text and text + 0
      if not n or n >= most or at < least then
        ok = false
      elseif at >= oldest then
        used = used + n
        if used > room and used - n <= room then full = math.max(0, newest - at) end
        if at >= newest then
          count, from, to = used, e + 1, e
        elseif n > 0 then
          to, last = e, newest - at
        end
      end
      p, at = (e or 0) + 1, at - 1
    end
    ok = ok and text ~= '0'
    if ok and count > 0 then
      start_i, count_i, used_i, full_i, oldest_i = newest * width, count, used, full, last
      older_i = string.sub(s_i, from, to)
    end
  end
  if not ok then write = true end
end

--@ admit
fits_i = used_i + (ARG.units or 0) <= ARG.limit + 0 or (ARG.units or 0) + 0 == 0

--@ most
local most_i = math.max(0, ARG.limit - used_i)
local fits_i = most_i > 0

--@ cost
local cost_i = (ARG.units or 0) + 0

--@ times
local times_i = cost_i > 0 and math.floor((ARG.limit - used_i) / cost_i) or n

--@ costs
cost_i = cost_i * times

--@ weigh
local cost_i = taken

--@ charge
if cost_i > 0 then
  local start = now - now % ARG.width
  if count_i > 0 and start > start_i then
    local moved = math.floor((start - start_i) / ARG.width)
    older_i = string.rep(',0', moved - 1) .. string.format(',%.0f', count_i) .. older_i
    count_i, oldest_i = 0, oldest_i + moved
  end
  start_i, count_i, used_i, write = start, count_i + cost_i, used_i + cost_i, true
end

--@ refund
if count_i > 0 and ARG.units + 0 > 0 then
  -- Sub-windows before the newest, from near to far, of which one counts the charge.
  local width, units = ARG.width + 0, ARG.units + 0
  local near = math.max(0, start_i / width - math.floor(ARG.last / width))
  local far = math.max(0, start_i / width - math.floor(at / width))
  -- Look for the oldest of them that counts anything: from p to e in the text, n units.
  local place, q, p, e, n = 1, 1, nil, nil, nil
  while place <= far and q <= #older_i do
    local _, to, count = string.find(older_i, '^,(%d+)', q)
    if place >= near and count ~= '0' then p, e, n = q, to, count + 0 end
    place, q = place + 1, to + 1
  end
  if p then
    write = true
    older_i = string.sub(older_i, 1, p) .. string.format('%.0f', n - math.min(units, n)) .. string.sub(older_i, e + 1)
    while string.sub(older_i, -2) == ',0' do older_i = string.sub(older_i, 1, -3) end
  elseif near == 0 then
    count_i, write = count_i - math.min(units, count_i), true
    while count_i == 0 and older_i ~= '' do -- the next is the newest
      local next, older = string.match(older_i, '^,(%d+)(.*)$')
      start_i, count_i, older_i = start_i - width, next + 0, older
    end
  end
end

--@ credit
if count_i > 0 then
  local back = math.min(ARG.units + 0, count_i)
  local units = ARG.units - back
  count_i, write = count_i - back, true
  while count_i == 0 and older_i ~= '' do -- the next is the newest
    local next, older = string.match(older_i, '^,(%d+)(.*)$')
    back = math.min(units, next + 0)
    start_i, count_i, older_i, units = start_i - ARG.width, next - back, older, units - back
  end
end

--@ store
local text_i, left_i = '', 1
if count_i > 0 then
  local low = start_i % 1000000000
  if low < start_i and count_i < 2147483648 then -- the same in half the time
    text_i = string.format('w%d%09d,%s,%d%s', (start_i - low) / 1000000000, low, TEXT.width, count_i, older_i)
  else
    text_i = string.format('w%.0f,%s,%.0f', start_i, TEXT.width, count_i) .. older_i
  end
  left_i = start_i + (ARG.buckets + 1) * ARG.width - now
end

--@ reply
fits_i and start_i or -1 - start_i, used_i, full_i, oldest_i
