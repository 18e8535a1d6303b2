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
  local m = {mark = remark}

  function m.open(key, t)
    local capacity = t.capacity
    local n, value = read(key, 56, FORMAT)
    if not n then
      t.level, t.at, t.top = capacity, now, capacity
      return
    end
    local level, at, top = n[1], n[2], n[6]
    if capacity > top then
      level = level + (capacity - top)
      top = capacity
    end
    level = max(min(level, capacity), -capacity)
    local new = later(at)
    if new > at then level = min(level + (new - at) * t.requests / t.period, capacity) end
    t.value, t.level, t.at, t.top, t.looked = value, level, new, top, n[7]
    t.demand, t.current, t.before = n[3], n[4], n[5]
  end

  function m.take(_, t, n)
    t.level = max(t.level - n, -t.capacity)
  end

  function m.give(_, t, n)
    t.level = min(t.level + n, t.capacity)
  end

  function m.wait(_, t, need)
    local missing = need - slack(need) / 2 - t.level
    if missing <= 0 then return 0 end
    return ceil(missing * t.period / t.requests) + (t.at - now)
  end

  function m.idle(_, t)
    return ceil((t.top - t.level) * t.period / t.requests) + (t.at - now)
  end

  function m.save(key, t, ttl)
    call('SET', key, pack(FORMAT, t.level, t.at, t.demand, t.current, t.before, t.top, t.looked), 'PX', ttl)
  end

  return m
end
