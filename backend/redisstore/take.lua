-- The takes of one call, of any kind. The text of this file and of the algorithms' stands in a
-- function, others, that is called when the first such call comes.

-- makers has the algorithms by their numbers. What a maker returns is a table of functions
-- of a key and a take, whose names and meanings are those of backend.meter, with these
-- differences: open sets the take's level, value (false if there is no bucket), looked and
-- back, beside fields of its own; take and give set the level; save writes the bucket as it
-- is now, and mark only the mark of a look, both with a time to live in milliseconds.
local makers = {[0] = tokens, tokens, fixed, sliding, log}

-- write keeps the bucket for as long as it differs from one that nobody touched. With
-- changed it is written as it is now; else only its mark is, or nothing but its end.
local function write(key, t, changed, marked)
  local m = t.meter
  local idle = max(min(m.idle(key, t), IDLE), min(t.looked - now, IDLE))
  if idle <= 0 then
    if t.value then call('DEL', key) end
    return
  end
  local ttl = ceil(idle / 1000) + 1 + extra
  if changed then
    m.save(key, t, ttl)
  elseif marked then
    m.mark(key, t, ttl)
  elseif t.value then
    call('PEXPIRE', key, ttl)
  end
end

local meters = {}

-- assess reads the next take and its bucket, and says whether it could be paid.
local function assess(key)
  local algorithm, requests, period, capacity, hits, give, mode, overflow, leases
  algorithm, requests, period, capacity, hits, give, mode, overflow, leases, offset = unpack('<ddddddddd', input, offset)
  local lease, calls = false, 1
  if leases == 1 then
    lease = {}
    lease.want, lease.held, lease.back, lease.counted, lease.generation, lease.asked, lease.demand, lease.fraction,
      lease.scarce, calls, offset = unpack('<dddddddddd', input, offset)
  end
  local m = meters[algorithm]
  if not m then
    m = makers[algorithm]()
    meters[algorithm] = m
  end
  local t = {
    meter = m, requests = requests, period = period, capacity = capacity, hits = hits, give = give, overflow = overflow,
    mode = mode, value = false, level = 0, at = 0, demand = 0, current = 0, before = 0, top = 0, looked = 0,
    need = 0, ok = false, debt = false, back = false, lease = lease, calls = calls,
  }
  m.open(key, t)
  t.debt = hits > 0 and (overflow == 1 or (overflow == 2 and t.looked > now))
  t.need = (hits == 0 or t.debt) and 1 or hits
  t.ok = (hits == 0 and give > 0) or t.level >= t.need - slack(t.need)
  return t
end

-- settle charges a take, or not, and answers it.
local function settle(key, t, denied, partial)
  local m = t.meter
  local taken = t.hits > 0 and (t.debt or (t.ok and not denied))
  local given = t.give > 0 and (t.ok or t.debt) and not denied and not partial
  local look = t.hits == 0 and t.give == 0
  local marked = look and t.overflow == 2
  local charged = 0
  if taken then
    local hits, most = t.hits, t.level + t.capacity
    if t.calls > 1 then hits = hits * min(t.calls, floor((t.level + slack(hits)) / hits)) end
    m.take(key, t, min(hits, most))
    charged = floor(min(hits, most + slack(most)))
  end
  if given then m.give(key, t, t.give) end
  if marked then t.looked = max(t.looked, now + t.period) end
  local granted, share, generation = 0, 0, 0
  if t.lease then granted, share, generation = m.lease(t, (t.hits == 0 and t.ok) or (taken and charged >= t.hits * t.calls)) end
  local full = min(m.wait(key, t, t.capacity), IDLE)
  local wait = t.ok and 0 or min(m.wait(key, t, min(t.need, t.capacity)), IDLE)
  local answer = pack('<dddddddd', (t.ok and 1 or 0) + (t.debt and 2 or 0), charged, t.level, wait, full, granted, share, generation)
  if taken or given or marked or t.back or t.lease or not look then
    write(key, t, taken or given or t.back or t.lease or (marked and not t.value), marked)
  end
  return answer
end

-- decide answers a call of so many takes, whose keys follow the one at last.
return function(count, last, reply)
  local partial
  partial, offset = unpack('<d', input, offset)
  local takes, denied, quota, paid = {}, false, false, false
  for i = 1, count do
    local t = assess(KEYS[last + i])
    if t.mode == 0 then
      denied = denied or not (t.ok or t.debt)
    elseif t.mode == 2 then
      quota, paid = true, paid or t.ok
    end
    takes[i] = t
  end
  denied = denied or (partial == 0 and quota and not paid)
  for i = 1, count do
    reply[last + i] = settle(KEYS[last + i], takes[i], denied, partial == 1)
  end
end
