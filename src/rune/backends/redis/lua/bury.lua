-- uses: rows
--
-- Forget an execution but for its tombstone and some values, a bounded part at each call.
--
-- KEYS[1]  exec:{<execution>}:x, and by it all the execution's keys
-- ARGV[1]  milliseconds to keep the rest   ARGV[2]  how much to forget at most
-- ARGV[3]  msgpack: the values to keep     ARGV[4]  msgpack: timers that are out of the due index
-- answer   1 when all is done; else a list of timers to take out of the due index, and call again
--
-- May be repeated, also after a crash in the middle: until the last call, which does the rest at once, whoever ended the
-- execution still gets its old answer and so comes back to bury it; nobody else passes the gate.

if call('HEXISTS', X, 'buried') == 1 then
  return 1
end
call('HSET', X, 'burying', 1)

local limit = tonumber(ARGV[2])
for _, id in ipairs(cmsgpack.unpack(ARGV[4])) do
  call('HDEL', prefix .. 'timers', id)
  call('HDEL', prefix .. 'sleepers', id)
  call('SREM', prefix .. 'disarmed', id)
end
for _, key in ipairs({ 'timers', 'sleepers' }) do
  local ids = call('HRANDFIELD', prefix .. key, limit)
  if #ids > 0 then
    return ids
  end
end
local ids = call('SRANDMEMBER', prefix .. 'disarmed', limit)
if #ids > 0 then
  return ids
end
for _, id in ipairs(call('SRANDMEMBER', prefix .. 'sown', limit)) do
  call('SADD', prefix .. 'g', id)
  call('SREM', prefix .. 'sown', id)
end
if not (forget_opened('', limit) and sweep(limit)) or call('EXISTS', prefix .. 'sown') == 1 then
  return {}
end

local keep, kept = cmsgpack.unpack(ARGV[3]), {}
for _, hash in ipairs(keep) do
  kept[hash] = call('HGET', prefix .. 'v', hash)
end
call('UNLINK', prefix .. 'v', prefix .. 's:', prefix .. 'e:', prefix .. 'leases', prefix .. 'leased',
  prefix .. 'parked', prefix .. 'unparked', prefix .. 'c')
call('DEL', X)
call('HSET', X, 'buried', 1)
call('PEXPIRE', X, ARGV[1])
for hash, value in pairs(kept) do
  if value then
    call('HSET', prefix .. 'v', hash, value)
    call('PEXPIRE', prefix .. 'v', ARGV[1])
  end
end
return 1
