-- uses: rows, timers
--
-- Say which of these timers of one execution are no more, or are never due.
--
-- KEYS[1]  exec:{<execution>}:x, and by it the timers' keys
-- ARGV[1]  msgpack: a list of ids
-- answer   those that have no place in the due index
--
-- May be repeated: it only reads.

local untimely = {}
for _, id in ipairs(cmsgpack.unpack(ARGV[1])) do
  local timer = timer_of(id)
  if not timer or timer.due == '-' then
    untimely[#untimely + 1] = id
  end
end
return untimely
