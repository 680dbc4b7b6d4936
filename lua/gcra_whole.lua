-- gcra-whole: gcra where one part drains in each microsecond, so that every level is of
-- whole microseconds. It is the commonest, and does without what is about parts.
--
-- Letter: g
-- Sections: gcra
-- Without: charge_r bound_r most_r unit_r capacity_r charged_r queue_r parts
-- Reply: w, or -1 - w if the cost does not fit.

--@ load
local w_i, r_i = 0, 0
if s_i and s_i ~= '' then
  local empty, parts = nil, ''
  if #s_i <= 16 and string.find(s_i, '^%d+$') then
    empty = s_i + 0
  elseif #s_i <= 40 then -- written under another rate, with parts; a match takes the square of a longer one
    empty, parts = string.match(s_i, '^(%d+)%+?(%d*)$')
    empty = empty and empty + 0
  end
  if empty and empty < 9007199254740992 then
    if parts ~= '' and parts + 0 > 0 then empty = empty + 1 end -- less than 1 us, rounded up
    local w = empty - now
    if w > ARG.most_w + 0 then
      w_i, write = ARG.most_w + 0, true
    elseif w > 0 then
      w_i = w
    end
  else
    write = true
  end
end

--@ admit
local bound_i = ARG.bound_w + 0
fits_i = w_i <= bound_i

--@ cost
local cw_i = ARG.charge_w + 0

--@ times
local times_i = cw_i > 0 and math.floor((bound_i - w_i) / cw_i) + 1 or n

--@ costs
cw_i = cw_i * times

--@ charge
if cw_i > 0 then w_i, write = w_i + cw_i, true end

--@ store
local text_i, left_i = '', 1
if w_i > 0 then
  local empty = now + w_i
  local low = empty % 1000000000
  text_i = low < empty and string.format('%d%09d', (empty - low) / 1000000000, low) or string.format('%.0f', empty)
  left_i = w_i
end

--@ reply
fits_i and w_i or -1 - w_i
