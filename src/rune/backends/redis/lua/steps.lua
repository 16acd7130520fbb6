-- A step's record, lease and spent attempts, which live in the hash of its scope.
-- Not a script: the loader puts it before those that ask for it, after rows.lua.

local function step_row(key, step)
  local f = call('HMGET', prefix .. 's:' .. key, 'r:' .. step, 'f:' .. step, 'l:' .. step, 'h:' .. step, 'p:' .. step,
    'o:' .. step)
  return {
    record = f[1], fence = tonumber(f[2] or 0), leased_until = tonumber(f[3] or 0), holder = f[4],
    spent = tonumber(f[5] or 0), turn = tonumber(f[6] or 0),
  }
end

local function grant(key, step, fence, until_, holder)
  call('HSET', prefix .. 's:' .. key, 'f:' .. step, fence, 'l:' .. step, until_, 'h:' .. step, holder)
  call('ZADD', prefix .. 'leases', until_, step)
  call('HSET', prefix .. 'leased', step, key)
end

local function end_lease(key, step)
  if call('HDEL', prefix .. 's:' .. key, 'l:' .. step, 'h:' .. step) > 0 then
    call('ZREM', prefix .. 'leases', step)
    call('HDEL', prefix .. 'leased', step)
  end
end
