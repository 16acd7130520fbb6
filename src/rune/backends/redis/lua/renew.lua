-- uses: rows, steps
--
-- Keep a lease for longer.
--
-- KEYS[1]  exec:{<execution>}:x, and by it all the execution's keys
-- ARGV[1]  the step   ARGV[2]  its fence   ARGV[3]  until when
-- answer   1, or 0 if the lease is lost
--
-- May be repeated: it sets a time.

local step = ARGV[1]
local key = call('HGET', prefix .. 'leased', step)
if not key then
  return 0
end
local known = step_row(key, step)
if known.record or known.fence ~= tonumber(ARGV[2]) or not known.holder then
  return 0
end
grant(key, step, known.fence, ARGV[3], known.holder)
return 1
