-- Move due timers, and those whose claim has run out, into the set of claimed ones.
--
-- KEYS[1]  {rune}:due      timers ("<execution>/<id>") by the time they are due
-- KEYS[2]  {rune}:claimed  claimed ones by the time their claim ends
-- ARGV[1]  the time   ARGV[2]  how many at most   ARGV[3]  until when they are claimed
-- answer   the timers, the one due first first
--
-- May be repeated: timers whose claimer does not discharge them are found again when the claim ends.

local function found(key)
  return redis.call('ZRANGEBYSCORE', key, '-inf', ARGV[1], 'WITHSCORES', 'LIMIT', 0, ARGV[2])
end

local due, old, timers = found(KEYS[1]), found(KEYS[2]), {}
local i, j = 1, 1
while #timers < tonumber(ARGV[2]) and (due[i] or old[j]) do
  if due[i] and (not old[j] or tonumber(due[i + 1]) <= tonumber(old[j + 1])) then
    timers[#timers + 1] = due[i]
    redis.call('ZREM', KEYS[1], due[i])
    i = i + 2
  else
    timers[#timers + 1] = old[j]
    j = j + 2
  end
  redis.call('ZADD', KEYS[2], ARGV[3], timers[#timers])
end
return timers
