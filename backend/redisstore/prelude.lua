-- What all of the script shares. The names are those of package backend.

local EPSILON = 1e-9       -- backend.Epsilon
local ROUNDING = 2 ^ -49   -- backend.rounding
local IDLE = 315360000e6   -- backend.MaxIdle, microseconds
local AHEAD = 10e6         -- backend.maxAhead, microseconds
local LIFE = 4e6           -- backend.LeaseLife, microseconds

local call, pack, unpack = redis.call, struct.pack, struct.unpack
local ceil, floor, max, min = math.ceil, math.floor, math.max, math.min

local input = ARGV[1]
local now, offset = unpack('<d', input)
local extra = 0 -- milliseconds that every key lives longer
if now == 0 then
  local time = call('TIME')
  now = time[1] * 1000000 + time[2]
else
  extra = 3600000
end

-- slack is what may be missing of n tokens that count as there.
local function slack(n)
  return EPSILON + n * ROUNDING
end

-- later is the time of a bucket that was at some time, once a call came now.
local function later(at)
  if now > at or now < at - AHEAD then return now end
  return at
end

-- get returns the string that lies at a key, or false. A value of another type, which is no
-- bucket, must not fail the other calls of the script.
local function get(key)
  local value = redis.pcall('GET', key)
  return type(value) == 'string' and value
end

local function generation(at)
  return floor(at / LIFE)
end
