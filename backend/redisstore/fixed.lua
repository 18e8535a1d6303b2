-- fixed is backend/fixed.go: fixed_window.
--
-- The value is three little-endian doubles, or six once the bucket leased in its window:
--   at       microseconds since 1970 up to which used is true
--   used     tokens taken in the window of that time, those on lease among them
--   demand   hits that instances with leases asked for lately     }
--   current  tokens out on lease, counted in the generation of at } only of six
--   before   the same, in the generation before                   }
--   looked   microseconds since 1970 at which the mark of a look ends
local function fixed()
  local PLAIN, LEASED = '<ddd', '<dddddd'
  local FORMATS = {[24] = PLAIN, [48] = LEASED}

  local function finish(t)
    return (window(t, t.at) + 1) * t.period
  end

  -- count sets what is used, and the level by it.
  local function count(t, used)
    t.used, t.level = used, remains(t, used)
  end

  local function give(_, t, n)
    count(t, max(t.used - n, min(t.used, t.current + t.before)))
  end

  local function restore(t, n, value)
    t.value, t.at, t.looked = value, n[1], n[#value / 8]
    if #value == 48 then t.demand, t.current, t.before = n[3], n[4], n[5] end
    return n[2]
  end

  local function open(key, t)
    local n, value = read(key, FORMATS)
    local used, at = 0, now
    t.at = now
    if n then
      used, at = restore(t, n, value), later(n[1])
      t.back = at < t.at
      if window(t, at) > window(t, t.at) then
        used, t.demand, t.current, t.before, t.at = 0, 0, 0, 0, at
      end
      age(t, t.at, at)
    end
    local l, same = t.lease, false
    if l then
      local generations = 2
      same = window(t, l.generation) == window(t, at)
      if same then generations = generation(at) - generation(l.generation) end
      account(t, generations, at - t.at)
    end
    t.at = at
    count(t, used)
    if same then give(key, t, l.back) end
  end

  local function take(_, t, n)
    count(t, t.used + n)
  end

  local function lease(t, paid)
    local granted, share = grant(t, paid, t.level)
    count(t, t.used + granted)
    return granted, share, t.at
  end

  local function wait(_, t, need)
    if t.level >= need then return 0 end
    return finish(t) - now
  end

  local function idle(_, t)
    if t.used <= 0 then return 0 end
    return finish(t) - now
  end

  local function save(key, t, ttl)
    local value
    if t.demand + t.current + t.before == 0 then
      value = pack(PLAIN, t.at, t.used, t.looked)
    else
      value = pack(LEASED, t.at, t.used, t.demand, t.current, t.before, t.looked)
    end
    call('SET', key, value, 'PX', ttl)
  end

  return {open = open, take = take, give = give, wait = wait, idle = idle, save = save, mark = remark, lease = lease}
end
