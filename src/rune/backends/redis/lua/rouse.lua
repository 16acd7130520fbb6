-- uses: rows, timers
--
-- Have a timer that is never due publish another Task at a time.
--
-- KEYS[1]  exec:{<execution>}:x, and by it the timers' keys
-- ARGV[1]  the timer   ARGV[2]  the time   ARGV[3]  the Task
-- answer   {1 or 0 if there is no such timer, timers for the due index}
--
-- May be repeated: whoever roused it is told so again, by the Task.

local id = ARGV[1]
local timer = timer_of(id)
if not timer or timer.due ~= '-' then
  local ours = timer and timer.task == ARGV[3]
  if ours then
    index(id)
  end
  return { ours and 1 or 0, to_index }
end
timer.due, timer.task = ARGV[2], ARGV[3]
save_timer(id, timer)
index(id)
return { 1, to_index }
