-- uses: rows
--
-- Pause an execution that is alive, or let it go on.
--
-- KEYS[1]  exec:{<execution>}:x, and by it the key of what is parked
-- ARGV[1]  "pause" or "go on"
-- answer   to "pause" 1, or 0 if it is not alive; to "go on" the parked Tasks
--
-- May be repeated: it sets a flag; what is parked stays so until it has been published.

if ARGV[1] == 'go on' then
  call('HDEL', X, 'paused')
  return call('HVALS', prefix .. 'parked')
end
local f = call('HMGET', X, 'since', 'ended', 'burying')
if not f[1] or f[2] or f[3] then
  return 0
end
call('HSET', X, 'paused', 1)
return 1
