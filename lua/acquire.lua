-- acquire: the places for one permit, all or none. A holder that has the id already is
-- admitted and its lease begins anew; with another weight it is as if it held none, but
-- fewer places than it has are never refused. A refusal writes nothing, except to heal.
--
-- KEYS[1] the permits of a key; see permits.lua.
-- Arguments: most lease now id weight
--   most    the number of permits
--   lease   the time that one lives, in microseconds
--   now     the forced time, or 0 for the server's
--   id      the permit
--   weight  the number of places that it takes, at least 1
-- Reply   the server's time in microseconds; the places in use, or -1 - places if it is
--         refused; if refused, the time at which there will be room if nobody renews,
--         or 0 for never; the end of the last lease, or 0.

--> open
local id, weight = ARG.id .. '#', ARG.weight + 0
--> held
local others, free = used - held, 0
if weight <= held or others <= most - weight then
  --> hold
  used = others + weight
else
  if weight <= most then
    -- The lease of others after whose end there is room: as far from the first one as
    -- there are places missing, not counting its own.
    local need = others + weight - most
    local first = redis.call('ZRANGEBYSCORE', key, '(' .. ended, '+inf', 'WITHSCORES', 'LIMIT', need - 1, 1)
    if held > 0 and first[2] + 0 >= ends then
      first = redis.call('ZRANGEBYSCORE', key, '(' .. ended, '+inf', 'WITHSCORES', 'LIMIT', need - 1 + held, 1)
    end
    free = (first[2] or 0) + 0
  end
  used, last = -1 - used, (redis.call('ZRANGE', key, -1, -1, 'WITHSCORES')[2] or 0) + 0
end
--> expire
return { now, used, free, last }
