-- uses: rows, timers
--
-- Say which of these timers of one execution are no more.
--
-- KEYS[1]  exec:{<execution>}:x, and by it the timers' keys
-- ARGV[1]  msgpack: a list of ids
-- answer   those that are not there
--
-- May be repeated: it only reads.

local missing = {}
for _, id in ipairs(cmsgpack.unpack(ARGV[1])) do
  if call('HEXISTS', prefix .. 'sleepers', id) == 0 and call('HEXISTS', prefix .. 'timers', id) == 0 then
    missing[#missing + 1] = id
  end
end
return missing
