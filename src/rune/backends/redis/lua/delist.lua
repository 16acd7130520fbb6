-- Note that an execution has ended.
--
-- KEYS[1]  {rune}:live   KEYS[2]  {rune}:paused   KEYS[3]  {rune}:ended  executions by the number of their ending
-- KEYS[4]  {rune}:endings  how many there were
-- ARGV[1]  the execution   ARGV[2]  how many endings are remembered
-- answer   the number of its ending
--
-- May be repeated: its number only grows.

redis.call('ZREM', KEYS[1], ARGV[1])
redis.call('SREM', KEYS[2], ARGV[1])
local number = redis.call('INCR', KEYS[4])
redis.call('ZADD', KEYS[3], number, ARGV[1])
redis.call('ZREMRANGEBYRANK', KEYS[3], 0, -1 - tonumber(ARGV[2]))
return number
