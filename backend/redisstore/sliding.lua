-- sliding is backend/sliding.go: sliding_window.
--
-- The value is four little-endian doubles:
--   at       microseconds since 1970 up to which the counts are true
--   current  tokens taken in the window of that time
--   before   tokens taken in the window before
--   looked   microseconds since 1970 at which the mark of a look ends
local function sliding()
  local FORMAT = '<dddd'
  local FORMATS = {[32] = FORMAT}

  local function begin(t)
    return window(t, t.at) * t.period
  end

  local function weight(t)
    return 1 - (t.at - begin(t)) / t.period
  end

  local function used(t)
    return t.current + t.before * weight(t)
  end

  local function open(key, t)
    local n, value = read(key, FORMATS)
    t.at, t.current, t.before = now, 0, 0
    if n then
      t.value, t.at, t.current, t.before, t.looked = value, later(n[1]), n[2], n[3], n[4]
      t.back = t.at < n[1]
      local passed = window(t, t.at) - window(t, n[1])
      if passed == 1 then
        t.current, t.before = 0, t.current
      elseif passed > 1 then
        t.current, t.before = 0, 0
      end
    end
    t.level = remains(t, used(t))
  end

  local function take(_, t, n)
    t.current = t.current + n
    t.level = remains(t, used(t))
  end

  local function give(_, t, n)
    local latest = min(n, t.current)
    t.current = t.current - latest
    t.before = max(t.before - (n - latest) / weight(t), 0)
    t.level = remains(t, used(t))
  end

  local function wait(_, t, need)
    local most = max(t.capacity - need + EPSILON / 2 - t.capacity * ROUNDING, 0)
    if used(t) <= most then return 0 end
    local from, counted, free = begin(t), t.before, most - t.current
    if free < 0 then
      from, counted, free = from + t.period, t.current, most
    end
    return ceil((1 - free / counted) * t.period) + (from - now)
  end

  local function idle(_, t)
    if t.current > 0 then return begin(t) + 2 * t.period - now end
    if t.before > 0 then return begin(t) + t.period - now end
    return 0
  end

  local function save(key, t, ttl)
    call('SET', key, pack(FORMAT, t.at, t.current, t.before, t.looked), 'PX', ttl)
  end

  return {open = open, take = take, give = give, wait = wait, idle = idle, save = save, mark = remark}
end
