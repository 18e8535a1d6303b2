-- tokens is backend/tokens.go: token_bucket and leaky_bucket.
--
-- The value is seven little-endian doubles:
--   level    tokens at the time at, negative while a debt is owed
--   at       microseconds since 1970
--   demand   hits that instances with leases asked for lately
--   current  tokens out on lease, counted in the generation of at
--   before   the same, in the generation before
--   top      the highest capacity that the bucket was ever given
--   looked   microseconds since 1970 at which the mark of a look ends
local function tokens()
  local FORMAT = '<ddddddd'
  local LIFE = 4e6     -- backend.LeaseLife, microseconds
  local LATELY = 250e3 -- backend.demandMicros
  local SMALLEST, CROWD = 2, 10

  local function generation(at)
    return floor(at / LIFE)
  end

  local function decay(count, micros)
    local x = max(micros, 0) / LATELY
    local f = 1 + x / 4
    f = 1 + x / 3 * f
    f = 1 + x / 2 * f
    f = 1 + x * f
    return count / f
  end

  local function age(t, at)
    local was, is = generation(t.at), generation(at)
    if is == was + 1 then
      t.current, t.before = 0, t.current
    elseif is > was then
      t.current, t.before = 0, 0
    elseif is < was then
      t.current, t.before = t.current + t.before, 0
    end
  end

  local function account(t, at)
    local l = t.lease
    local since = generation(at) - l.generation
    if since == 0 then
      t.current = max(t.current - l.counted, 0)
    elseif since == 1 then
      t.before = max(t.before - l.counted, 0)
    end
    t.current = t.current + l.held
    t.demand = decay(t.demand, at - t.at) + l.asked
  end

  local function room(t)
    return max(t.capacity - t.current - t.before, 0)
  end

  local function give(_, t, n)
    t.level = min(t.level + n, room(t))
  end

  local function open(key, t)
    local capacity = t.capacity
    local value = call('GET', key)
    local level, at, demand, current, before, top, looked
    if value and #value == 56 then
      level, at, demand, current, before, top, looked = unpack(FORMAT, value)
      local sum = level + at + demand + current + before + top + looked
      if sum - sum ~= 0 then value = false end -- not a number, or infinite
    else
      value = false
    end
    if not value then
      level, at, demand, current, before, top, looked = capacity, now, 0, 0, 0, capacity, 0
    end
    local changed = capacity > top or math.abs(level) > capacity
    if capacity > top then
      level = level + (capacity - top)
      top = capacity
    end
    t.value, t.at, t.top, t.looked = value, at, top, looked
    t.demand, t.current, t.before = demand, current, before
    local new = later(at)
    local elapsed = new - at
    age(t, new)
    if t.lease then account(t, new) end
    local most = room(t)
    level = max(min(level, most), -capacity)
    if elapsed > 0 then level = min(level + elapsed * t.requests / t.period, most) end
    t.level, t.at, t.back = level, new, changed or elapsed < 0
    if t.lease then give(key, t, t.lease.back) end
  end

  local function take(_, t, n)
    t.level = max(t.level - n, -t.capacity)
  end

  local function lease(t, paid)
    local l = t.lease
    local granted, share = 0, 1
    if l.demand < t.demand then share = l.demand / t.demand end
    if paid then
      local out = t.current + t.before
      local free = floor(t.level + slack(t.level))
      local n = (l.fraction * (t.level + out) - out) / 4
      if free < 2 * l.scarce and t.demand >= CROWD then n = max(n, share * min(free, l.scarce) - l.held) end
      n = floor(min(n, free, l.want))
      if n >= SMALLEST then
        t.level = t.level - n
        t.current = t.current + n
        granted = n
      end
    end
    return granted, share, generation(t.at)
  end

  local function wait(_, t, need)
    local missing = need - slack(need) / 2 - t.level
    if missing <= 0 then return 0 end
    return ceil(missing * t.period / t.requests) + (t.at - now)
  end

  local function idle(_, t)
    local full = ceil((t.top - t.level) * t.period / t.requests) + (t.at - now)
    if t.current > 0 then return max(full, (generation(t.at) + 2) * LIFE - now) end
    if t.before > 0 then return max(full, (generation(t.at) + 1) * LIFE - now) end
    return full
  end

  local function save(key, t, ttl)
    call('SET', key, pack(FORMAT, t.level, t.at, t.demand, t.current, t.before, t.top, t.looked), 'PX', ttl)
  end

  return {open = open, take = take, give = give, wait = wait, idle = idle, save = save, mark = remark, lease = lease}
end
