-- uses: rows, execution, gate, steps, variables()
--
-- Grant the right to run steps.
--
-- KEYS[1]  exec:{<execution>}:x, and by it all the execution's keys
-- ARGV[1]  the time   ARGV[2]  "new" if the execution may be unknown   ARGV[3]  the attempt   ARGV[4]  until when
-- ARGV[5]  who asks, and which of its calls this is   ARGV[6]  msgpack: a list of {step, place}
-- answer   "unknown" if there is no such execution, "buried" if it is; else for each step "gone",
--          "dropped", {"fence", number}, {"record", outcome, turn} or {"busy", until}
--
-- May be repeated: a lease that this very call was granted is granted again, with the same fence.

if not execution.known and ARGV[2] ~= 'new' then
  return 'unknown'
elseif execution.buried then
  return 'buried'
end

local function lease(step, place)
  local answer = gate(step, place)
  if answer then
    return answer.gone and 'gone' or 'dropped'
  end
  local key = scope_key(place)
  local known = step_row(key, step)
  if known.record then
    own(place)
    local sets = call('HGET', prefix .. 's:' .. key, 'w:' .. step)
    if sets then
      known.turn = variables().set(cmsgpack.unpack(sets))
      call('HSET', prefix .. 's:' .. key, 'o:' .. step, known.turn)
      call('HDEL', prefix .. 's:' .. key, 'w:' .. step)
    end
    return { 'record', known.record, known.turn }
  end
  if known.spent >= tonumber(ARGV[3]) then
    return 'gone'
  end
  if known.leased_until > now then
    return known.holder == ARGV[5] and { 'fence', known.fence } or { 'busy', exact(known.leased_until) }
  end
  own(place)
  grant(key, step, known.fence + 1, ARGV[4], ARGV[5])
  return { 'fence', known.fence + 1 }
end

touch()
local answers = {}
for i, asked in ipairs(cmsgpack.unpack(ARGV[6])) do
  answers[i] = lease(asked[1], asked[2])
end
return answers
