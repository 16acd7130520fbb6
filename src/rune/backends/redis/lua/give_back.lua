-- uses: rows, steps
--
-- Give leases back unused, as if the steps had never started.
--
-- KEYS[1]  exec:{<execution>}:x, and by it all the execution's keys
-- ARGV[1]  who asks   ARGV[2]  msgpack: a list of {step, fence}
-- answer   how many were given back
--
-- May be repeated: only the holder of a lease gives it back, and then holds it no more.

local count = 0
for _, given in ipairs(cmsgpack.unpack(ARGV[2])) do
  local step, fence = given[1], given[2]
  local key = call('HGET', prefix .. 'leased', step)
  local known = key and step_row(key, step)
  local ours = known and known.holder and string.sub(known.holder, 1, #ARGV[1] + 1) == ARGV[1] .. ':'
  if ours and known.fence == fence and not known.record then
    call('HSET', prefix .. 's:' .. key, 'f:' .. step, fence - 1)
    end_lease(key, step)
    count = count + 1
  end
end
return count
