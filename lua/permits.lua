-- permits: the sections that the scripts acquire and renew share.
--
-- KEYS[1] is a sorted set: for a permit of weight w its members are "id#1" to "id#w",
-- each with the end of the lease, in microseconds, as its score. A lease that ends
-- later than one that begins now is cut to that, at once, also by a refusal; leases
-- that have ended are removed only where something is written anyway, so that a refusal
-- need not.
--
-- The sections read the arguments most, lease and now of the script, and leave these:
--   open    key, most, lease, now; used, the places in use; ended and latest, now and the
--           end of a lease that begins now as text; last, the latter as a number; write
--   held    reads id; held, the number of places that the id has, and ends, the end of their lease
--   hold    reads id, weight and held
--   expire  writes the key's own expiry

--@ open
local key, most, lease, now, forced = KEYS[1], ARG.most + 0, ARG.lease + 0, ARG.now + 0, 86400000
if now == 0 then
  local t = redis.call('TIME')
  now, forced = t[1] * 1000000 + t[2], 0 -- a forced time stays out of the way of Redis's own
end
local last, write = now + lease, false
local ended, latest = string.format('%.0f', now), string.format('%.0f', last)
local used = redis.pcall('ZCOUNT', key, '(' .. ended, '+inf')
if type(used) == 'table' then -- an error; a foreign type under our key is discarded
  if not string.find(used.err, 'WRONGTYPE', 1, true) then return used end
  redis.call('DEL', key)
  used = 0
end
if redis.call('ZCARD', key) > 20000 then -- more than there ever are
  redis.call('DEL', key)
  used = 0
end
for _, member in ipairs(redis.call('ZRANGEBYSCORE', key, '(' .. latest, '+inf')) do
  redis.call('ZADD', key, latest, member)
  write = true
end

--@ held
local held, ends = 0, 0
repeat
  local score = redis.call('ZSCORE', key, id .. string.format('%.0f', held + 1))
  local alive = score and score + 0 > now
  if alive then held, ends = held + 1, score + 0 end
until not alive

--@ hold
for i = 1, weight do -- before anything else is written: a server without memory refuses this
  redis.call('ZADD', key, latest, id .. string.format('%.0f', i))
end
redis.call('ZREMRANGEBYSCORE', key, '-inf', ended)
for i = weight + 1, held do
  redis.call('ZREM', key, id .. string.format('%.0f', i))
end
write = true

--@ expire
if write then redis.call('PEXPIRE', key, math.ceil(lease / 1000) + forced) end
