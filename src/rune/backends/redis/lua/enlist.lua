-- List an execution as alive, and say whether this is still the Redis we know.
--
-- KEYS[1]  {rune}:epoch  a random name, made when Redis was first used: if it changes, all was lost in between
-- KEYS[2]  {rune}:live   executions by the time they were first seen
-- ARGV[1]  the time   ARGV[2]  the epoch that a Redis without one gets   ARGV[3…]  executions
-- answer   the epoch
--
-- May be repeated: the first time stands.

redis.call('SET', KEYS[1], ARGV[2], 'NX')
for i = 3, #ARGV do
  redis.call('ZADD', KEYS[2], 'NX', ARGV[1], ARGV[i])
end
return redis.call('GET', KEYS[1])
