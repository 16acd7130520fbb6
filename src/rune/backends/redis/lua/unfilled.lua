-- Say which of some items have no slot yet.
--
-- KEYS[1]  exec:{<execution>}:i:<barrier>, its slots
-- ARGV[1]  the first item   ARGV[2]  the one behind the last   ARGV[3]  how many to name at most
-- answer   the items
--
-- May be repeated: it only reads.

local found = {}
for item = tonumber(ARGV[1]), tonumber(ARGV[2]) - 1 do
  if redis.call('HEXISTS', KEYS[1], item) == 0 then
    found[#found + 1] = item
    if #found == tonumber(ARGV[3]) then
      break
    end
  end
end
return found
