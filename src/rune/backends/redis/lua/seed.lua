-- uses: rows, execution, variables()
--
-- Put outcomes on record before their steps exist.
--
-- KEYS[1]  exec:{<execution>}:x, and by it all the execution's keys
-- ARGV[1]  the time   ARGV[2]  "new" if the execution may be unknown
-- ARGV[3]  msgpack: a list of {step, place, outcome, variables, turn}; place is a list of {barrier, item}, variables
--          are a flat list of names and values, which are set when the step is met if turn is 0
-- answer   "unknown" if there is no such execution, "buried" if it is, else 1
--
-- May be repeated: the first record of a step stands, and sets its variables once. A scope gets its row when one of
-- its steps is met; until then its item is listed in its barrier, and the barrier apart, so that burying finds them
-- even if it never opens.

if not execution.known and ARGV[2] ~= 'new' then
  return 'unknown'
elseif execution.buried or execution.burying then
  return 'buried'
end
touch()
if execution.ended then
  return 1
end
local sown = {}
for _, seed in ipairs(cmsgpack.unpack(ARGV[3])) do
  local step, place, outcome, sets, turn = seed[1], seed[2], seed[3], seed[4], seed[5]
  local key, last = scope_key(place), place[#place]
  -- One that has been started finds its outcome itself.
  local started = call('HEXISTS', prefix .. 's:' .. key, 'f:' .. step) == 1
  if not started and call('HSETNX', prefix .. 's:' .. key, 'r:' .. step, outcome) == 1 and #sets > 0 then
    if turn > 0 then
      call('HSET', prefix .. 's:' .. key, 'o:' .. step, turn)
      variables().sow(sets, turn)
    else
      call('HSET', prefix .. 's:' .. key, 'w:' .. step, cmsgpack.pack(sets))
    end
  end
  if last then
    if not sown[last[1]] then
      sown[last[1]] = true
      call('SADD', prefix .. 'sown', last[1])
    end
    call('SADD', prefix .. 'o:' .. last[1], last[2])
  end
end
return 1
