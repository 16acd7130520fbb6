-- uses: rows, execution, timers
--
-- Remove timers of one execution whose Tasks have been published; one that was armed or claimed anew stays.
--
-- KEYS[1]  exec:{<execution>}:x, and by it the timers' keys
-- ARGV[1]  the time   ARGV[2]  msgpack: a list of {id, until when it was claimed, sleeping}
-- answer   how many were removed
--
-- May be repeated: what is gone, or claimed by another call, is left alone.

local count, woken = 0, false
for _, claim in ipairs(cmsgpack.unpack(ARGV[2])) do
  local timer = timer_of(claim[1])
  -- One that nobody claims is never due, unless somebody has woken it since.
  if timer and tonumber(timer.claimed) == claim[2] and (claim[2] or timer.due == '-') then
    call('HDEL', prefix .. (timer.sleeping and 'sleepers' or 'timers'), claim[1])
    count = count + 1
  end
  woken = woken or claim[3]
end
-- Branches that slept are on their way: that is progress.
if woken and execution.known and not execution.buried then
  touch()
end
return count
