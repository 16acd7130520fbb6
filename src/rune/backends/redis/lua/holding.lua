-- uses: rows, execution
--
-- Say what keeps an execution alive: a bounded part of it.
--
-- KEYS[1]  exec:{<execution>}:x, and by it all the execution's keys
-- ARGV[1]  the time   ARGV[2]  how many of each kind at most
-- answer   0 if it is unknown or buried; else {live, touched, paused, ended, parked, leases, sleepers, timers, barriers,
--          merges, {leases, timers}}: a lease is {step, scope, until}, of timers there are id and text in turn, a barrier
--          is {id, scope, total or nil, done, failed, skipped, published, release}, a merge {id, scope, expected, accounted, live,
--          need, members}; at last how many leases and timers there are
--
-- May be repeated: it only reads.

if not execution.known or execution.buried or execution.burying then
  return 0
end
local limit = tonumber(ARGV[2])
local most = 20 * limit

local function held_leases()
  local found, steps = {}, call('ZRANGEBYSCORE', prefix .. 'leases', '(' .. ARGV[1], '+inf', 'WITHSCORES', 'LIMIT', 0, limit)
  for i = 1, #steps, 2 do
    local key = call('HGET', prefix .. 'leased', steps[i])
    -- One whose scope has ended, and took the step along, is none.
    if key and call('HEXISTS', prefix .. 's:' .. key, 'f:' .. steps[i]) == 1 then
      found[#found + 1] = { steps[i], key, steps[i + 1] }
    end
  end
  return found
end

local function merge_of(id, key)
  local f = call('HMGET', prefix .. 'm:' .. id, 'expected', 'accounted', 'live', 'need', 'state')
  if f[5] ~= 'waiting' then
    return nil
  end
  local members = {}
  for _, field in ipairs(call('HRANDFIELD', prefix .. 'm:' .. id, limit)) do
    if string.sub(field, 1, 2) == 'a:' then
      members[#members + 1] = string.sub(field, 3)
    end
  end
  return { id, key, tonumber(f[1]), tonumber(f[2]), tonumber(f[3]), f[4], members }
end

-- From the root inwards, until there is enough of either.
local open, waiting, inner, seen, at = {}, {}, { '' }, 0, 1
while inner[at] and seen < most and (#open < limit or #waiting < limit) do
  local key = inner[at]
  for _, name in ipairs(call('SRANDMEMBER', prefix .. 'n:' .. key, limit)) do
    local id = string.sub(name, 2)
    seen = seen + 1
    if string.sub(name, 1, 1) == 'm' then
      local merge = merge_of(id, key)
      if merge and #waiting < limit then
        waiting[#waiting + 1] = merge
      end
    else
      local row = barrier(id)
      if row and not row.closed then
        if #open < limit then
          open[#open + 1] = { id, key, known_total(row), call('HLEN', prefix .. 'i:' .. id), row.failed, row.skipped,
            row.published, text_of(row, 'release') }
        end
        for _, item in ipairs(call('SRANDMEMBER', prefix .. 'o:' .. id, limit)) do
          inner[#inner + 1] = id .. '.' .. item
        end
      end
    end
  end
  at = at + 1
end

return {
  tonumber(call('HGET', prefix .. 's:', 'live') or 1), tostring(execution.touched),
  call('HEXISTS', X, 'paused'), execution.ended and 1 or 0, call('HLEN', prefix .. 'parked'),
  held_leases(),
  call('HRANDFIELD', prefix .. 'sleepers', limit, 'WITHVALUES'),
  call('HRANDFIELD', prefix .. 'timers', limit, 'WITHVALUES'),
  open, waiting,
  { call('ZCOUNT', prefix .. 'leases', '(' .. ARGV[1], '+inf'),
    call('HLEN', prefix .. 'sleepers') + call('HLEN', prefix .. 'timers') },
}
