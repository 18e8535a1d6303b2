-- log is backend/log.go: sliding_log.
--
-- The bucket is a sorted set. An entry's score is its time in microseconds since 1970, and
-- its member two little-endian doubles: the tokens taken in the whole life of the log
-- before it, and with it. The member "looked", if there, has as score minus the time at
-- which the mark of a look ends, and so comes first.
--
-- take and give change the set at once, so that nothing is left to save but its end.
local function log()
  local m = {}

  local function add(key, at, before, after)
    call('ZADD', key, at, pack('<dd', before, after))
  end

  -- entry returns time, before, after and member of the entry at a rank; nothing for the
  -- mark, and where there is none.
  local function entry(key, rank)
    local e = call('ZRANGE', key, rank, rank, 'WITHSCORES')
    local at = tonumber(e[2])
    if not at or at < 0 then return nil end
    local before, after = unpack('<dd', e[1])
    return at, before, after, e[1]
  end

  -- collapse has the entries after a time taken at that time.
  local function collapse(key, at, after)
    local first = call('ZRANGEBYSCORE', key, '(' .. string.format('%.0f', at), '+inf', 'LIMIT', 0, 1)[1]
    call('ZREMRANGEBYSCORE', key, '(' .. string.format('%.0f', at), '+inf')
    add(key, at, (unpack('<dd', first)), after)
  end

  function m.open(key, t)
    t.at, t.used = now, 0
    local first = call('ZRANGE', key, 0, 0, 'WITHSCORES')
    t.value = first[1] or false
    t.rank = 0 -- of the oldest entry
    if first[1] == 'looked' then
      t.looked, t.rank = -tonumber(first[2]), 1
    end
    local newest, _, after = entry(key, -1)
    if newest then
      t.at = later(newest)
      if t.at < newest then collapse(key, t.at, after) end
      call('ZREMRANGEBYSCORE', key, 0, string.format('%.0f', t.at - t.period))
      local oldest, before = entry(key, t.rank)
      if oldest then t.used, t.base = after - before, before end
    end
    t.level = remains(t, t.used)
  end

  function m.take(key, t, n)
    if n <= 0 then return end
    local last, before, after, member = entry(key, -1)
    if last and (last == t.at or call('ZCARD', key) - t.rank >= t.requests) then
      call('ZREM', key, member)
      add(key, t.at, before, after + n)
    else
      if not last then
        after, t.base = 0, 0
      end
      add(key, t.at, after, after + n)
    end
    t.used = t.used + n
    t.level = remains(t, t.used)
  end

  function m.give(key, t, n)
    while n > 0 and t.used > 0 do
      local last, before, after, member = entry(key, -1)
      call('ZREM', key, member)
      local size = after - before
      if size > n then add(key, last, before, after - n) end
      size = min(size, n)
      n, t.used = n - size, t.used - size
    end
    t.level = remains(t, t.used)
  end

  function m.wait(key, t, need)
    local excess = t.used - (t.capacity - need)
    if excess <= 0 then return 0 end
    -- The first entry up to which so many tokens were taken.
    local low, high = t.rank, call('ZCARD', key) - 1
    while low < high do
      local middle = floor((low + high) / 2)
      local _, _, after = entry(key, middle)
      if after - t.base >= excess then high = middle else low = middle + 1 end
    end
    return entry(key, low) + t.period - now
  end

  function m.idle(key, t)
    if t.used <= 0 then return 0 end
    return entry(key, -1) + t.period - now
  end

  function m.save(key, t, ttl)
    if t.looked > now then call('ZADD', key, -t.looked, 'looked') end
    call('PEXPIRE', key, ttl)
  end

  m.mark = m.save
  return m
end
