-- uses: rows
--
-- Keep a Task of a paused execution.
--
-- KEYS[1]  exec:{<execution>}:x, and by it the key of what is parked
-- ARGV[1]  the step   ARGV[2]  the Task
-- answer   1, or 0 if the execution is not paused
--
-- May be repeated: Tasks are parked by step.

if call('HEXISTS', X, 'paused') == 0 then
  return 0
end
call('HSET', prefix .. 'parked', ARGV[1], ARGV[2])
return 1
