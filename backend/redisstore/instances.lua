-- instances keeps the list of the instances that share the limits.
--
-- KEYS[1]  sorted set: the instances' names, by when they were heard last
--
-- ARGV[1]  name of the instance that speaks
-- ARGV[2]  microseconds for which an instance counts after it was heard; 0: this one leaves
--
-- Reply    number of instances, this one included unless it leaves; and of those whose names
--          are smaller than its own
--
-- The list ends one life after the last instance was heard.
local time = redis.call('TIME')
local now, life = time[1] * 1000000 + time[2], tonumber(ARGV[2])
if life == 0 then
  redis.call('ZREM', KEYS[1], ARGV[1])
else
  redis.call('ZADD', KEYS[1], now, ARGV[1])
  redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now - life)
  redis.call('PEXPIRE', KEYS[1], math.ceil(life / 1000))
end
local names, before = redis.call('ZRANGE', KEYS[1], 0, -1), 0
for _, name in ipairs(names) do
  if name < ARGV[1] then
    before = before + 1
  end
end
return {#names, before}
