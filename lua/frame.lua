-- frame: what every script does first and last, whatever its algorithms.
--
-- KEYS[1] is the state: one segment for each limit, joined by ";". The time comes
-- from the server, once; tests and simulation send theirs as the last argument.

--@ open
local now, forced, write = ARGV_now, 0, false
if now then
  now, forced = now + 0, 86400000 -- Redis expires by its own clock: stay out of its way
else
  local t = redis.call('TIME')
  now = t[1] * 1000000 + t[2]
end
local stored = redis.pcall('GET', KEYS[1])
if stored and stored.err then -- a text has no err; a foreign type under our key is discarded
  if not string.find(stored.err, 'WRONGTYPE', 1, true) then return stored end
  stored, write = false, true
end

--@ split
local s_all
if stored then
  s_all = string.match(stored, '^segments_all$')
  if not s_1 then write = true end
end

--@ write
redis.call('SET', KEYS[1], text_all, 'PX', math.ceil(left_all / 1000) + forced)
