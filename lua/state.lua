-- state: what is kept for a key, without changing anything.
--
-- KEYS[1] the counts of a key, or with permits its permits; see permits.lua.
-- Arguments: permits
--   permits  1 to read permits, else 0
-- Reply   the server's time as redis.call('TIME') has it: seconds and microseconds; the stored text, or false, or with
--         permits the end of the lease of each place, in microseconds, the earliest first.

local t = redis.call('TIME')
if ARG.permits == '0' then
  local text = redis.pcall('GET', KEYS[1])
  if type(text) == 'table' then -- an error; a foreign type under our key is as if unused
    if not string.find(text.err, 'WRONGTYPE', 1, true) then return text end
    text = false
  end
  return { t[1], t[2], text }
end
local ends = { t[1], t[2] }
local members = redis.pcall('ZRANGE', KEYS[1], 0, 20000, 'WITHSCORES')
if members.err then
  if not string.find(members.err, 'WRONGTYPE', 1, true) then return members end
  members = {}
end
for i = 2, #members, 2 do -- an end beyond 2^53 is none that a script has written
  ends[#ends + 1] = string.format('%.0f', math.max(-2^53, math.min(members[i] + 0, 2^53)))
end
return ends
