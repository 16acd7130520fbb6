-- uses: rows
--
-- Store values under their hashes, unless the execution is buried.
--
-- KEYS[1]  exec:{<execution>}:x, and by it the values' key
-- ARGV[1]  the time   ARGV[2]  "new" if the execution may be unknown   ARGV[3…]  hash, value, hash, value…
-- answer   "unknown" if there is no such execution, "buried" if it is, else 1
--
-- May be repeated: the same hash is the same value.

local f = call('HMGET', X, 'since', 'buried')
if f[2] then
  return 'buried'
end
if not f[1] then
  if ARGV[2] ~= 'new' then
    return 'unknown'
  end
  call('HSET', X, 'since', ARGV[1])
end
for i = 3, #ARGV, 2 do
  call('HSETNX', prefix .. 'v', ARGV[i], ARGV[i + 1])
end
return 1
