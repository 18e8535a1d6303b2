-- What the algorithms and take.lua share. The names are those of package backend.

local EPSILON = 1e-9       -- backend.Epsilon
local ROUNDING = 2 ^ -49   -- backend.rounding
local IDLE = 315360000e6   -- backend.MaxIdle, microseconds
local AHEAD = 10e6         -- backend.maxAhead, microseconds

local call, pack, unpack = redis.call, struct.pack, struct.unpack
local ceil, floor, max, min = math.ceil, math.floor, math.max, math.min

local input = ARGV[1]
local now, partial, offset = unpack('<dd', input)
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

-- remark writes a value again with another mark, the last of its numbers.
local function remark(key, t, ttl)
  call('SET', key, string.sub(t.value, 1, -9) .. pack('<d', t.looked), 'PX', ttl)
end

-- window is the number of the window of a time.
local function window(t, at)
  return floor(at / t.period)
end

-- remains is what a limit leaves of its capacity if so much of it is used.
local function remains(t, used)
  return max(t.capacity - used, -t.capacity)
end

-- read returns the numbers of a value of so many bytes, or nothing: whatever else lies
-- there counts as no bucket, and is overwritten.
local function read(key, bytes, format)
  local value = call('GET', key)
  if not value or #value ~= bytes then return nil end
  local numbers = {unpack(format, value)}
  for i = 1, bytes / 8 do
    if numbers[i] - numbers[i] ~= 0 then return nil end -- not a number, or infinite
  end
  return numbers, value
end
