-- uses: rows, timers
--
-- Take timers of one execution that the due index says are due.
--
-- KEYS[1]  exec:{<execution>}:x, and by it the timers' keys
-- ARGV[1]  the time   ARGV[2]  until when they are claimed   ARGV[3]  msgpack: a list of ids
-- answer   for each {"taken", sleeping, task, when it was due}, or what is true instead: {"due", time},
--          {"claimed", until}, {"gone"}
--
-- May be repeated: a claim has an end, at which the timer is found again.

local now, answers = tonumber(ARGV[1]), {}
for i, id in ipairs(cmsgpack.unpack(ARGV[3])) do
  local timer = timer_of(id)
  if not timer or timer.due == '-' then
    answers[i] = { 'gone' }
  elseif timer.claimed ~= '-' and tonumber(timer.claimed) > now then
    answers[i] = { 'claimed', timer.claimed }
  elseif tonumber(timer.due) > now then
    answers[i] = { 'due', timer.due }
  else
    timer.claimed = ARGV[2]
    save_timer(id, timer)
    answers[i] = { 'taken', timer.sleeping and 1 or 0, timer.task, timer.due }
  end
end
return answers
