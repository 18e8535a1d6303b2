-- tokens is backend/tokens.go: token_bucket and leaky_bucket.
--
-- The value is seven little-endian doubles:
--   level    tokens at the time at, negative while a debt is owed
--   at       microseconds since 1970
--   demand   hits asked for lately                    } kept for leases, and
--   current  tokens on lease in this generation       } not yet changed by
--   before   tokens on lease in the generation before } anything here
--   top      the highest capacity that the bucket was ever given
--   looked   microseconds since 1970 at which the mark of a look ends
local function tokens()
  local FORMAT = '<ddddddd'

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
      t.level, t.at, t.top = capacity, now, capacity
      return
    end
    local changed = capacity > top or math.abs(level) > capacity
    if capacity > top then
      level = level + (capacity - top)
      top = capacity
    end
    level = max(min(level, capacity), -capacity)
    local elapsed = later(at) - at
    if elapsed > 0 then level = min(level + elapsed * t.requests / t.period, capacity) end
    t.value, t.level, t.at, t.top, t.looked, t.back = value, level, at + elapsed, top, looked, changed or elapsed < 0
    t.demand, t.current, t.before = demand, current, before
  end

  local function take(_, t, n)
    t.level = max(t.level - n, -t.capacity)
  end

  local function give(_, t, n)
    t.level = min(t.level + n, t.capacity)
  end

  local function wait(_, t, need)
    local missing = need - slack(need) / 2 - t.level
    if missing <= 0 then return 0 end
    return ceil(missing * t.period / t.requests) + (t.at - now)
  end

  local function idle(_, t)
    return ceil((t.top - t.level) * t.period / t.requests) + (t.at - now)
  end

  local function save(key, t, ttl)
    call('SET', key, pack(FORMAT, t.level, t.at, t.demand, t.current, t.before, t.top, t.looked), 'PX', ttl)
  end

  return {open = open, take = take, give = give, wait = wait, idle = idle, save = save, mark = remark}
end
