-- uses: rows
--
-- Pause an execution that is alive, or let it go on.
--
-- KEYS[1]  exec:{<execution>}:x, and by it the keys of what is parked
-- ARGV[1]  "pause" or "go on"
-- answer   to "pause" 1, or 0 if it is not alive; to "go on" the parked Tasks
--
-- May be repeated: it sets a flag; what was parked is kept until it has been published, apart from what is parked
-- when the execution is paused again meanwhile.

if ARGV[1] == 'go on' then
  call('HDEL', X, 'paused')
  local parked = call('HGETALL', prefix .. 'parked')
  for i = 1, #parked, 2 do
    call('HSET', prefix .. 'unparked', parked[i], parked[i + 1])
  end
  call('UNLINK', prefix .. 'parked')
  return call('HVALS', prefix .. 'unparked')
end
local f = call('HMGET', X, 'since', 'ended', 'burying')
if not f[1] or f[2] or f[3] then
  return 0
end
call('HSET', X, 'paused', 1)
return 1
