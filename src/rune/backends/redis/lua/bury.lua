-- uses: rows
--
-- Forget an execution but for its tombstone and some values, a bounded part at each call.
--
-- KEYS[1]  exec:{<execution>}:x, and by it all the execution's keys
-- ARGV[1]  milliseconds to keep the rest   ARGV[2]  how much to forget at most
-- ARGV[3]  msgpack: timers that are out of the due index
-- ARGV[4]  msgpack: values to keep         ARGV[5]  "more" if the next call names more of them
-- answer   1 when all is done; else a list of timers to take out of the due index, and call again
--
-- May be repeated, also after a crash in the middle: until the last call, which does the rest at once, whoever ended the
-- execution still gets its old answer and so comes back to bury it; nobody else passes the gate.

if call('HEXISTS', X, 'buried') == 1 then
  return 1
end
call('HSET', X, 'burying', 1)

local limit, BYTES = tonumber(ARGV[2]), 1024 * 1024
for _, hash in ipairs(cmsgpack.unpack(ARGV[4])) do
  call('SADD', prefix .. 'kept', hash)
end
if ARGV[5] == 'more' then
  return {}
end
for _, id in ipairs(cmsgpack.unpack(ARGV[3])) do
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

-- What is kept is moved aside by and by; whoever looks for a value finds all of them until then.
local bytes = 0
for _, hash in ipairs(call('SRANDMEMBER', prefix .. 'kept', limit)) do
  local value = call('HGET', prefix .. 'v', hash)
  if value then
    call('HSET', prefix .. 'rest', hash, value)
    bytes = bytes + #value
  end
  call('SREM', prefix .. 'kept', hash)
  if bytes > BYTES then
    break
  end
end
if call('EXISTS', prefix .. 'kept') == 1 then
  return {}
end
call('UNLINK', prefix .. 'v', prefix .. 's:', prefix .. 'e:', prefix .. 'leases', prefix .. 'leased',
  prefix .. 'parked', prefix .. 'unparked', prefix .. 'c', prefix .. 'ct')
call('DEL', X)
call('HSET', X, 'buried', 1)
call('PEXPIRE', X, ARGV[1])
if call('EXISTS', prefix .. 'rest') == 1 then
  call('RENAME', prefix .. 'rest', prefix .. 'v')
  call('PEXPIRE', prefix .. 'v', ARGV[1])
end
return 1
