-- Have the due index say what is true of timers.
--
-- KEYS[1]  {rune}:due   KEYS[2]  {rune}:claimed
-- ARGV[1]  the channel on which schedulers hear of an earlier timer
-- ARGV[2…] timer, "due" | "claimed" | "gone" | "done" | "undue", time: a timer that is "gone" is in neither set;
--          one that is "done" was claimed until then, one that is "undue" was due then, and is removed unless that
--          has changed
-- answer   the number of timers that are due or claimed
--
-- May be repeated: it copies what is true elsewhere; a timer that is not is found out when it is claimed.

local function first(key)
  return tonumber(redis.call('ZRANGE', key, 0, 0, 'WITHSCORES')[2]) or math.huge
end

local soonest, earlier = math.min(first(KEYS[1]), first(KEYS[2])), nil
for i = 2, #ARGV, 3 do
  local timer, what, time = ARGV[i], ARGV[i + 1], ARGV[i + 2]
  if what == 'due' then
    redis.call('ZREM', KEYS[2], timer)
    redis.call('ZADD', KEYS[1], time, timer)
    if tonumber(time) < soonest then
      soonest, earlier = tonumber(time), time
    end
  elseif what == 'claimed' then
    redis.call('ZREM', KEYS[1], timer)
    redis.call('ZADD', KEYS[2], time, timer)
  elseif what == 'gone' then
    redis.call('ZREM', KEYS[1], timer)
    redis.call('ZREM', KEYS[2], timer)
  else
    local key = what == 'undue' and KEYS[1] or KEYS[2]
    local score = redis.call('ZSCORE', key, timer)
    if score and tonumber(score) == tonumber(time) then
      redis.call('ZREM', key, timer)
    end
  end
end
if earlier then
  redis.call('PUBLISH', ARGV[1], earlier)
end
return redis.call('ZCARD', KEYS[1]) + redis.call('ZCARD', KEYS[2])
