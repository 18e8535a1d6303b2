-- plain is tokens.lua for the commonest call by far: one charge of a token bucket, without a
-- lease, that is rejected if it cannot be paid. Most scripts have no other, so they make none
-- of the functions and tables that the others need, which would cost more than this does.
local function plain(key, requests, period, capacity, hits)
  local value = get(key)
  local level, at, demand, current, before, top, looked
  if value and #value == 56 then
    level, at, demand, current, before, top, looked = unpack('<ddddddd', value)
    local sum = level + at + demand + current + before + top + looked
    if sum - sum ~= 0 then value = false end -- not a number, or infinite
  else
    value = false
  end
  if not value then
    level, at, demand, current, before, top, looked = capacity, now, 0, 0, 0, capacity, 0
  end
  local changed = capacity > top or level > capacity or level < -capacity
  if capacity > top then
    level = level + (capacity - top)
    top = capacity
  end
  local new = later(at)
  local elapsed = new - at
  if current + before > 0 then
    local was, is = generation(at), generation(new)
    if is == was + 1 then
      current, before = 0, current
    elseif is > was then
      current, before = 0, 0
    elseif is < was then
      current, before = current + before, 0
    end
  end
  local most = max(capacity - current - before, 0)
  level = max(min(level, most), -capacity)
  if elapsed > 0 then level = min(level + elapsed * requests / period, most) end
  local ok, charged, wait, full = level >= hits - slack(hits), 0, 0, 0
  local behind = new - now
  if ok then
    level, charged = level - hits, hits
  else
    local need = min(hits, capacity)
    local missing = need - slack(need) / 2 - level
    if missing > 0 then wait = min(ceil(missing * period / requests) + behind, IDLE) end
  end
  local missing = capacity - slack(capacity) / 2 - level
  if missing > 0 then full = min(ceil(missing * period / requests) + behind, IDLE) end
  local idle = ceil((top - level) * period / requests) + behind
  if current > 0 then
    idle = max(idle, (generation(new) + 2) * LIFE - now)
  elseif before > 0 then
    idle = max(idle, (generation(new) + 1) * LIFE - now)
  end
  idle = min(max(idle, looked - now), IDLE)
  if idle <= 0 then
    if value then call('DEL', key) end
  elseif ok or changed or elapsed < 0 then
    call('SET', key, pack('<ddddddd', level, new, demand, current, before, top, looked), 'PX', ceil(idle / 1000) + 1 + extra)
  elseif value then
    call('PEXPIRE', key, ceil(idle / 1000) + 1 + extra)
  end
  return pack('<dddddddd', ok and 1 or 0, charged, level, wait, full, 0, 0, 0)
end
