-- log is backend/log.go: sliding_log.
--
-- The bucket is a sorted set. An entry's score is its time in microseconds since 1970, and
-- its member two little-endian doubles: the tokens taken in the whole life of the log
-- before it, and with it. The member "looked", if there, has as score minus the time at
-- which the mark of a look ends, and so comes first.
--
-- take and give change the set at once, so that nothing is left to save but its end.
local function log()
  local function text(at)
    return string.format('%.0f', at)
  end

  local function add(key, at, before, after)
    call('ZADD', key, at, pack('<dd', before, after))
  end

  local function remove(key, before, after)
    call('ZREM', key, pack('<dd', before, after))
  end

  -- entry returns time, before and after of the entry at a rank; nothing for the mark, and
  -- where there is none.
  local function entry(key, rank)
    local e = call('ZRANGE', key, rank, rank, 'WITHSCORES')
    local at = tonumber(e[2])
    if not at or at < 0 then return nil end
    return at, unpack('<dd', e[1])
  end

  -- search returns the rank of the first entry for which holds says yes of the tokens taken
  -- with it, or of the newest.
  local function search(key, t, holds)
    local low, high = t.rank, call('ZCARD', key) - 1
    while low < high do
      local middle = floor((low + high) / 2)
      local _, _, after = entry(key, middle)
      if holds(after) then high = middle else low = middle + 1 end
    end
    return low
  end

  -- newest reads the newest entry: its time (nil if there is none) and its two numbers.
  local function newest(key, t)
    t.last, t.start, t.total = entry(key, -1)
  end

  -- collapse has the entries that a clock left in the future, before it was set back, taken
  -- now.
  local function collapse(key, t)
    local future = '(' .. text(t.at)
    local first = call('ZRANGEBYSCORE', key, future, '+inf', 'LIMIT', 0, 1)[1]
    call('ZREMRANGEBYSCORE', key, future, '+inf')
    t.last, t.start = t.at, (unpack('<dd', first))
    add(key, t.last, t.start, t.total)
  end

  local function open(key, t)
    t.at, t.used, t.rank = now, 0, 0 -- rank is that of the oldest entry
    local first = redis.pcall('ZRANGE', key, 0, 0, 'WITHSCORES')
    if first.err or (first[1] and first[1] ~= 'looked' and #first[1] ~= 16) then -- no bucket, whatever it is
      call('DEL', key)
      first = {}
    end
    t.value = first[1] or false
    if first[1] == 'looked' then
      t.looked, t.rank = -tonumber(first[2]), 1
    end
    if t.value then newest(key, t) end
    if t.last then
      t.at = later(t.last)
      t.back = t.at < t.last
      if t.back then collapse(key, t) end
      call('ZREMRANGEBYSCORE', key, 0, text(t.at - t.period))
      local oldest, before = entry(key, t.rank)
      if oldest then
        t.used, t.base = t.total - before, before
      else
        t.last = nil
      end
    end
    t.level = remains(t, t.used)
  end

  local function take(key, t, n)
    if n <= 0 then return end -- the debt is as deep as it gets
    if not t.last then
      t.start, t.total, t.base = 0, n, 0
    elseif t.last == t.at or (t.used >= t.requests and call('ZCARD', key) - t.rank >= t.requests) then
      remove(key, t.start, t.total)
      t.total = t.total + n
    else
      t.start, t.total = t.total, t.total + n
    end
    t.last, t.used = t.at, t.used + n
    add(key, t.last, t.start, t.total)
    t.level = remains(t, t.used)
  end

  local function give(key, t, n)
    if n <= 0 or not t.last then return end
    local left = max(t.total - n, t.base)
    local rank = search(key, t, function(after) return after > left end)
    local at, before = entry(key, rank)
    call('ZREMRANGEBYRANK', key, rank, -1)
    if before < left then
      add(key, at, before, left)
      t.last, t.start, t.total = at, before, left
    else
      newest(key, t)
    end
    t.used = left - t.base
    t.level = remains(t, t.used)
  end

  local function wait(key, t, need)
    local excess = t.used - (t.capacity - need)
    if excess <= 0 then return 0 end
    if excess == t.used then return t.last + t.period - now end
    return entry(key, search(key, t, function(after) return after - t.base >= excess end)) + t.period - now
  end

  local function idle(_, t)
    if not t.last then return 0 end
    return t.last + t.period - now
  end

  local function save(key, t, ttl)
    if t.looked > now then call('ZADD', key, -t.looked, 'looked') end
    call('PEXPIRE', key, ttl)
  end

  return {open = open, take = take, give = give, wait = wait, idle = idle, save = save, mark = save}
end
