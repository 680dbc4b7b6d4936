-- takes: what take decides, for many keys and many calls in one: calls that are equal in
-- everything but the key. The limits are the same for all, and so is the time. It is as if
-- take ran for each call, in the order of the keys, but that a key is read and written once.
--
-- KEYS    the states: at most 1000, and each of them once.
-- Arguments, after those of the limits in take: now counts...
--   now     the forced time, or 0
--   counts  how many calls there are for each key, 1 to 65536; 1 where it is left out
-- Zeros at the very end may be left out, and so may ones, if they are counts.
-- The sections times and costs read
--   n       how many calls there are
--   times   how many of them are charged
-- Reply   the server's time in microseconds, then an answer for each key: what take
--         replies of its limits to the last of the calls; and where that was refused
--         and was not the only one, how many before it were admitted.
--         The answer -9007199254740992 alone says that nothing was decided or changed:
--         the server refuses to read or to write this key, or what is stored turned out
--         to be broken between the first and the last of the calls. Ask for each call by
--         itself. If the server refuses all keys, its error is the reply.
--
-- Everybody else on the server waits for it. Where take takes 5.0 us for one gcra, it takes
-- 5.2 us for one key, 22 us for 8 and 145 us for 64; for 64 keys each takes 2.3 us, or
-- about half of that if refused; 2.9 us with two limits, 2.6 us with a token-bucket, 2.7 us
-- with a fixed-window, 3.1 us with a sliding-counter, 3.3 us with a sliding-window. A
-- sliding-log takes 4 us while it is short, 30 to 100 us with 1000 entries, and 160 to 250 us
-- more where it refuses a cost of 500, which it must look for room for. Of calls for one key that are
-- decided together all but the first cost nothing; a refusal after some that were admitted
-- is as much again.

--> arguments
--> clock
local KEYS, pcall, counted = KEYS, redis.pcall, ARG.counts[1] -- nil if all are 1
local reply, at, undone, failure = { now }, 1, 0, nil
local texts = #KEYS > 1 and pcall('MGET', (table.unpack or unpack)(KEYS)) or nil
if texts and texts.err then texts = nil end -- then each key answers for itself
for i = 1, #KEYS do
  local key, n, write, stored, failed = KEYS[i], 1, false, nil, false
  if counted then n = (ARG.counts[i] or 1) + 0 end
  if texts then
    stored = texts[i]
  else
    stored = pcall('GET', key)
    if stored and stored.err then -- a text has no err; a foreign type under our key is discarded
      if string.find(stored.err, 'WRONGTYPE', 1, true) then write = true else failed, failure = true, stored end
      stored = false
    end
  end
  local times, text, left, second, again = n, nil, nil, false, not failed
  while again do -- and once more for the first that is refused after others were admitted
    --> split
    --> load
    local verdicts_all
    --> admit
    again = false
    if second then -- it is refused, unless the state turns out to be broken
      failed = write or fits_all
    elseif fits_all then
      --> cost
      if n > 1 then
        --> times
        times = math.min(n, times_all)
        again = times < n
        --> costs
      end
      --> charge
    else
      times = 0
    end
    if write and not failed then
      --> store
      text, left = text_all, left_all
    end
    if again then
      second, stored, write = true, text, false
    elseif not failed then
      if text then
        -- A server up to version 7.0 takes longer to print a number than this.
        local done = pcall('SET', key, text, 'PX', string.format('%d', math.ceil(left / 1000) + forced))
        if done.err then failed, failure = true, done end
      end
      if not failed then
        slots_all = reply_all
        at = at + width_all
        if n > 1 and not (fits_all) then
          at = at + 1
          reply[at] = times
        end
      end
    end
  end
  if failed then
    at, undone = at + 1, undone + 1
    reply[at] = -9007199254740992
  end
end
if failure and undone == #KEYS then return failure end
return reply
