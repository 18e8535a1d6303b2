-- What the algorithms share.

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

-- read returns the numbers of a value, whose format is that of its length, or nothing:
-- whatever else lies there counts as no bucket, and is overwritten.
local function read(key, formats)
  local value = get(key)
  local format = value and formats[#value]
  if not format then return nil end
  local numbers = {unpack(format, value)}
  for i = 1, #value / 8 do
    if numbers[i] - numbers[i] ~= 0 then return nil end -- not a number, or infinite
  end
  return numbers, value
end

-- What follows is backend/lease.go. The take of a bucket that leases has its demand, current
-- and before.

local LATELY = 250e3 -- backend.demandMicros
local SMALLEST, CROWD = 2, 10

local function decay(count, micros)
  local x = max(micros, 0) / LATELY
  local f = 1 + x / 4
  f = 1 + x / 3 * f
  f = 1 + x / 2 * f
  f = 1 + x * f
  return count / f
end

local function age(t, from, to)
  local was, is = generation(from), generation(to)
  if is == was + 1 then
    t.current, t.before = 0, t.current
  elseif is > was then
    t.current, t.before = 0, 0
  elseif is < was then
    t.current, t.before = t.current + t.before, 0
  end
end

local function account(t, generations, elapsed)
  local l = t.lease
  if generations == 0 then
    t.current = max(t.current - l.counted, 0)
  elseif generations == 1 then
    t.before = max(t.before - l.counted, 0)
  end
  t.current = t.current + l.held
  t.demand = decay(t.demand, elapsed) + l.asked
end

local function grant(t, paid, level)
  local l = t.lease
  local granted, share = 0, 1
  if l.demand < t.demand then share = l.demand / t.demand end
  if paid then
    local out = t.current + t.before
    local free = floor(level + slack(level))
    local n = (l.fraction * (level + out) - out) / 4
    if free < 2 * l.scarce and t.demand >= CROWD then n = max(n, share * min(free, l.scarce) - l.held) end
    n = floor(min(n, free, l.want))
    if n >= SMALLEST then
      t.current = t.current + n
      granted = n
    end
  end
  return granted, share
end
