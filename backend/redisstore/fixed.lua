-- fixed is backend/fixed.go: fixed_window.
--
-- The value is three little-endian doubles:
--   at       microseconds since 1970 up to which used is true
--   used     tokens taken in the window of that time
--   looked   microseconds since 1970 at which the mark of a look ends
local function fixed()
  local FORMAT = '<ddd'
  local function finish(t)
    return (window(t, t.at) + 1) * t.period
  end

  local function open(key, t)
    local n, value = read(key, 24, FORMAT)
    t.at, t.current = now, 0
    if n then
      t.value, t.at, t.current, t.looked = value, later(n[1]), n[2], n[3]
      t.back = t.at < n[1]
      if window(t, t.at) > window(t, n[1]) then t.current = 0 end
    end
    t.level = remains(t, t.current)
  end

  local function take(_, t, n)
    t.current = t.current + n
    t.level = remains(t, t.current)
  end

  local function give(_, t, n)
    t.current = max(t.current - n, 0)
    t.level = remains(t, t.current)
  end

  local function wait(_, t, need)
    if t.level >= need then return 0 end
    return finish(t) - now
  end

  local function idle(_, t)
    if t.current <= 0 then return 0 end
    return finish(t) - now
  end

  local function save(key, t, ttl)
    call('SET', key, pack(FORMAT, t.at, t.current, t.looked), 'PX', ttl)
  end

  return {open = open, take = take, give = give, wait = wait, idle = idle, save = save, mark = remark}
end
