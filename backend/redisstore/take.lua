-- take decides the takes of one call and charges them, as backend.Settle does: the
-- arithmetic here is that of backend/tokens.go, operation for operation.
--
-- KEYS[i]  the bucket of take i; on a cluster all of one slot.
--
-- ARGV[1]  little-endian doubles, first of the call:
--            now      microseconds since 1970; 0: Redis' own time. Only tests give one,
--                     and what they write lives an hour longer, since Redis expires by
--                     its own clock.
--            partial  1 if the call has takes in other scripts too: quota takes deny
--                     nothing here and nothing is given back, both being decided once all
--                     have answered.
--          then of each take:
--            algorithm  0 token bucket, 1 leaky bucket
--            requests   tokens that come back per period
--            period     microseconds
--            burst      capacity in tokens
--            hits       tokens to take, at most 2^53
--            give       tokens to put back, at most 2^53
--            mode       0 enforce, 1 shadow, 2 quota
--            overflow   0 reject, 1 debt, 2 auto
--
-- Reply    little-endian doubles, of each take:
--            state    1 if OK, plus 2 if the charge was taken as a debt
--            charged  tokens taken
--            level    tokens after the call
--            wait     microseconds until the same take could be paid; 0 if OK
--            full     microseconds until the bucket is full
--
-- The value of a bucket is seven little-endian doubles:
--            level    tokens at the time ts, negative while a debt is owed
--            ts       microseconds since 1970
--            demand   hits asked for lately                      } kept for leases, and
--            cur      tokens on lease in this generation         } not yet changed by
--            prev     tokens on lease in the generation before   } anything here
--            top      the highest capacity that the bucket was ever given
--            looked   microseconds since 1970 at which the mark of a look ends
-- It expires when the bucket is as if nobody had touched it, at most ten years on.

local EPSILON = 1e-9       -- backend.Epsilon
local ROUNDING = 2 ^ -49   -- backend.rounding
local IDLE = 315360000e6   -- backend.MaxIdle, microseconds
local AHEAD = 10e6         -- backend.maxAhead, microseconds
local VALUE = '<ddddddd'

local call, pack, unpack = redis.call, struct.pack, struct.unpack
local ceil, max, min = math.ceil, math.max, math.min

local input = ARGV[1]
local now, partial, offset = unpack('<dd', input)
local extra = 0
if now == 0 then
  local time = call('TIME')
  now = time[1] * 1000000 + time[2]
else
  extra = 3600000
end

-- open reads a bucket and brings it to now. Anything that is not a bucket's value counts
-- as none, and is overwritten.
local function open(key, t)
  local value = call('GET', key)
  local level, ts, demand, cur, prev, top, looked
  if value and #value == 56 then
    level, ts, demand, cur, prev, top, looked = unpack(VALUE, value)
    local sum = level + ts + demand + cur + prev + top + looked
    if sum - sum ~= 0 then value = false end -- not a number, or infinite
  else
    value = false
  end
  local burst = t.burst
  if not value then
    level, ts, demand, cur, prev, top, looked = burst, now, 0, 0, 0, burst, 0
  else
    if burst > top then
      level = level + (burst - top)
      top = burst
    end
    level = max(min(level, burst), -burst)
    local elapsed = now - ts
    if elapsed > 0 then
      level = min(level + elapsed * t.requests / t.period, burst)
      ts = now
    elseif elapsed < -AHEAD then
      ts = now
    end
  end
  t.value, t.level, t.ts, t.demand, t.cur, t.prev, t.top, t.looked = value, level, ts, demand, cur, prev, top, looked
end

-- slack is what may be missing of n tokens that count as there.
local function slack(n)
  return EPSILON + n * ROUNDING
end

-- wait is the time after now, in microseconds, at which need tokens will be there, at
-- most IDLE: a bucket that nobody touches is gone by then, and so full.
local function wait(t, need)
  local missing = need - slack(need) / 2 - t.level
  if missing <= 0 then return 0 end
  return min(ceil(missing * t.period / t.requests) + (t.ts - now), IDLE)
end

-- write keeps the bucket for as long as it differs from one that nobody touched. With
-- changed it is written as it is now; else only its mark is, or nothing but its end.
local function write(key, t, changed, marked)
  local idle = min(ceil((t.top - t.level) * t.period / t.requests) + (t.ts - now), IDLE)
  idle = max(idle, min(t.looked - now, IDLE))
  if idle <= 0 then
    if t.value then call('DEL', key) end
    return
  end
  local ttl = ceil(idle / 1000) + 1 + extra
  if changed then
    call('SET', key, pack(VALUE, t.level, t.ts, t.demand, t.cur, t.prev, t.top, t.looked), 'PX', ttl)
  elseif marked then
    call('SET', key, string.sub(t.value, 1, 48) .. pack('<d', t.looked), 'PX', ttl)
  elseif t.value then
    call('PEXPIRE', key, ttl)
  end
end

local takes = {}
local denied, quota, paid = false, false, false
for i = 1, #KEYS do
  local algorithm, requests, period, burst, hits, give, mode, overflow
  algorithm, requests, period, burst, hits, give, mode, overflow, offset = unpack('<dddddddd', input, offset)
  local t = {
    requests = requests, period = period, burst = burst, hits = hits, give = give, overflow = overflow,
    value = false, level = 0, ts = 0, demand = 0, cur = 0, prev = 0, top = 0, looked = 0,
    need = 0, ok = false, debt = false,
  }
  open(KEYS[i], t)
  t.debt = hits > 0 and (overflow == 1 or (overflow == 2 and t.looked > now))
  t.need = (hits == 0 or t.debt) and 1 or hits
  t.ok = (hits == 0 and give > 0) or t.level >= t.need - slack(t.need)
  if mode == 0 then
    denied = denied or not (t.ok or t.debt)
  elseif mode == 2 then
    quota, paid = true, paid or t.ok
  end
  takes[i] = t
end
denied = denied or (partial == 0 and quota and not paid)

local reply = {}
for i = 1, #KEYS do
  local t = takes[i]
  local taken = t.hits > 0 and (t.debt or (t.ok and not denied))
  local given = t.give > 0 and (t.ok or t.debt) and not denied and partial == 0
  local look = t.hits == 0 and t.give == 0
  local marked = look and t.overflow == 2
  local charged = 0
  if taken then
    if t.debt then
      local most = t.level + t.burst
      charged = math.floor(min(t.hits, most + slack(math.abs(most))))
      t.level = max(t.level - t.hits, -t.burst)
    else
      charged = t.hits
      t.level = max(t.level - t.hits, 0)
    end
  end
  if given then t.level = min(t.level + t.give, t.burst) end
  if marked then t.looked = max(t.looked, now + t.period) end
  if taken or given or marked or not look then
    write(KEYS[i], t, taken or given or (marked and not t.value), marked)
  end
  reply[i] = pack('<ddddd', (t.ok and 1 or 0) + (t.debt and 2 or 0), charged, t.level,
    t.ok and 0 or wait(t, min(t.need, t.burst)), wait(t, t.burst))
end
return table.concat(reply)
