-- gcra-whole: gcra where one part drains in each microsecond, so that every level is of
-- whole microseconds. It is the commonest, and does without what is about parts.
--
-- Letter: g
-- Sections: gcra
-- Without: charge_r bound_r most_r unit_r capacity_r charged_r queue_r parts
-- Reply: w, or -1 - w if the cost does not fit.

--@ reply
fits_i and w_i or -1 - w_i
