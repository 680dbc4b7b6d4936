package redistest

// GCRAByHand is the baseline of benchmarks: GCRA as a user of go-redis would write it by hand, with doubles, four
// integers in the reply, and no healing. Its arguments are the microseconds between two units, those that the burst
// takes, and the cost.
const GCRAByHand = `
local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
local emission, burst, cost = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local tat = tonumber(redis.call('GET', KEYS[1]) or now)
if tat < now then tat = now end
local new = tat + emission * cost
local ahead = new - burst
if ahead > now then return {0, 0, ahead - now, tat - now} end
redis.call('SET', KEYS[1], new, 'PX', math.ceil((new - now) / 1000))
return {1, math.floor((now - ahead) / emission), 0, new - now}
`
