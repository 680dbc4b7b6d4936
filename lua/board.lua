-- board: adds what one process has counted for some keys to a list of those that count most. A key that has no place
-- has at most as much as the last one that lost its place, the floor: so much is added to one that comes anew, so that
-- what the list says of a key is never too little, and too much by the floor at most.
--
-- KEYS[1] a sorted set: of the keys, with what they count; and of names that begin with "!", with nothing or less:
--         "!" alone, with the floor; and "!" with the name of a process, with what any one key may have beyond what that
--         process added.
-- Arguments: keep ttl source missed
--   keep    the number of keys that have a place
--   ttl     the expiry, in milliseconds
--   source  the name of the process
--   missed  what any key may have beyond what this process has added, in place of what it said before
--           then for each key its name and what is added to it, at least 1
-- Reply   the number of keys, and the floor.

local key, keep = KEYS[1], ARG.keep + 0
local known = redis.pcall('ZSCORE', key, '!')
if type(known) == 'table' then -- an error; a foreign type under our key is discarded
  if not string.find(known.err, 'WRONGTYPE', 1, true) then return known end
  redis.call('DEL', key)
  known = false
end
local floor = -((known or 0) + 0)
redis.call('ZADD', key, string.format('%.0f', -ARG.missed), '!' .. ARG.source)
for k = 5, #ARGV, 2 do
  local units = ARGV[k + 1] + 0
  if floor > 0 and not redis.call('ZSCORE', key, ARGV[k]) then units = units + floor end
  redis.call('ZADD', key, 'INCR', string.format('%.0f', units), ARGV[k])
end
local keys = redis.call('ZCOUNT', key, '(0', '+inf')
if keys > keep then
  local out = redis.call('ZRANGEBYSCORE', key, '(0', '+inf', 'WITHSCORES', 'LIMIT', 0, keys - keep)
  for k = 1, #out, 2 do
    redis.call('ZREM', key, out[k])
  end
  floor, keys = math.max(floor, out[#out] + 0), keep
  redis.call('ZADD', key, string.format('%.0f', -floor), '!')
end
redis.call('PEXPIRE', key, ARG.ttl)
return { keys, floor }
