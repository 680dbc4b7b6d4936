-- frame: the beginning and the end of every script, whatever its algorithms.
--
-- A key is the state: one segment for each limit, joined by ";". The time comes
-- from the server, once; tests and simulation send theirs as the argument now.
--
-- Between split and write the sections of the algorithms stand. In them "_i" at the end of
-- a name is the number of the limit, and ARG.name an argument of that limit, as the
-- header of the file declares them for each script; TEXT.name is the text of it that was
-- sent. Besides its own names a section reads
--   now     the server's time, in microseconds
--   write   to be set if the state has changed or had to be corrected
--   s_i     the limit's segment of the text, nil or empty if unused
-- and what the header of a template says that it reads. It leaves
--   load    the state, brought to what the rules allow now
--   admit   fits_i, whether the cost fits
--   most    most_i, how many units fit, and fits_i, whether that is any
--   cost    the charge of the cost that was asked for
--   times   times_i, how many times a cost that fits does so, one charge after the other
--   costs   the charge of so many times the cost
--   weigh   the charge of taken units
--   charge  the state with the charge
--   refund  the state without what is given back
--   credit  the state without the units, the latest first
--   store   text_i, the segment, and left_i, how long until it is unused; 1 if it is
--   reply   the limit's part of the reply
--
-- string.format takes three times as long for '%.0f', which prints every whole number up
-- to 2^53, as for '%d', which on some servers knows 32 bits. So an instant is printed as
-- its seconds in thousands and the rest, by '%d%09d'.

--@ clock
local now, forced = (ARG.now or 0) + 0, 86400000 -- Redis expires by its own clock: stay out of its way
if now == 0 then
  local t = redis.call('TIME')
  now, forced = t[1] * 1000000 + t[2], 0
end

--@ read
local write, stored = false, redis.pcall('GET', KEYS[1])
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
