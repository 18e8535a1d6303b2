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

  local function room(t)
    return max(t.capacity - t.current - t.before, 0)
  end

  local function give(_, t, n)
    t.level = min(t.level + n, room(t))
  end

  local function open(key, t)
    local capacity = t.capacity
    local value = get(key)
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
    age(t, at, new)
    if t.lease then account(t, generation(new) - t.lease.generation, elapsed) end
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
    local granted, share = grant(t, paid, t.level)
    t.level = t.level - granted
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
