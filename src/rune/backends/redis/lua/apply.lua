-- uses: rows, execution, gate, timers, steps, folds(), fanouts, merges(), variables()
--
-- Carry out commits in order, each with all its operations or none.
--
-- KEYS[1]  exec:{<execution>}:x, and by it all the execution's keys
-- ARGV[1]  the time   ARGV[2]  "new" if the execution may be unknown
-- ARGV[3]  msgpack: a list of {step, place, operations, when the execution started, the barrier whose source it reads};
--          place is a list of {barrier, item}; the last is missing for a branch; an operation is {name, …} with the fields that the function of its name below unpacks
-- answer   "unknown" if there is no such execution, "buried" if it is; else
--          {answers, timers for the due index, 1 if there is something to sweep}; an answer is 0, or a flat
--          list of names and values
--
-- May be repeated: records, slots, settled steps, arrivals, refills and timers are members keyed by step or item, the
-- first one stands, and who closed something is kept with it, so that it gets its old answer.

local operations = {}

operations.settle = settle
operations.extend = extend

function operations.record(commit, op, answer)
  local outcome, fence, sets = op[2], op[3], op[4]
  local step, key = commit[1], scope_key(commit[2])
  local known = step_row(key, step)
  if known.record then
    answer.turn = known.turn > 0 and known.turn or nil
    if known.record ~= outcome then
      answer.record = known.record
      return false
    end
    return
  end
  if fence ~= 0 and fence ~= known.fence then
    answer.gone = true
    return false
  end
  own(commit[2])
  call('HSET', prefix .. 's:' .. key, 'r:' .. step, outcome)
  end_lease(key, step)
  if #sets > 0 then
    answer.turn = variables().set(sets)
    call('HSET', prefix .. 's:' .. key, 'o:' .. step, answer.turn)
  end
end

function operations.again(commit, op)
  local attempt, timer = op[2], op[3]
  local step, key = commit[1], scope_key(commit[2])
  if step_row(key, step).spent >= attempt then
    index(timer[1])
    return
  end
  own(commit[2])
  end_lease(key, step)
  call('HSET', prefix .. 's:' .. key, 'p:' .. step, attempt, 'f:' .. step, 0)
  arm(timer)
end

function operations.arrive(commit, op, answer)
  merges().arrive(commit, op[2], op[3], op[4], answer)
end

function operations.skip(commit, op, answer)
  merges().skip(commit, op[2], op[3], op[4], answer)
end

function operations.open(commit, op, answer)
  local id, total, wide, release, tolerated, need_success = op[2], op[3], op[4], op[5], op[6], op[7]
  local window, published, keep_results, timer, more, lazy = op[8], op[9], op[10], op[11], op[12], op[13]
  local known = barrier(id)
  if known then
    answer_again(known, commit[1], answer)
    if not known.closed and known.timer ~= '' then
      index(known.timer)
    end
    return
  end
  own(commit[2])
  call('SADD', prefix .. 'n:' .. scope_key(commit[2]), 'b' .. id)
  call('HSET', prefix .. 'b:' .. id, 'total', total, 'width', wide, 'release', release, 'tolerated', tolerated or '',
    'need_success', need_success and 1 or 0, 'window', window, 'published', published,
    'keep_results', keep_results and 1 or 0, 'timer', timer and timer[1] or '', 'refill', more, 'source', lazy and 'idle' or '',
    'failed', 0, 'skipped', 0, 'closed', 0, 'closer', '', 'failure', '')
  barriers[id] = nil
  local row = barrier(id)
  if known_total(row) == 0 then
    close(row, commit[1], '', answer)
    return
  end
  if timer then
    arm(timer)
  end
  if lazy then
    refill(row, commit[1], 0, answer)
  end
end

function operations.arm(commit, op)
  arm(op[2])
end

-- With `idle`, only time counts in which nothing happened, no branch slept and none ran.
local function postponed(timer, idle, since, answer)
  if not idle then
    return false
  end
  local quiet = math.max(execution.touched, since)
  local due, rests = quiet + idle, resting(now)
  if rests == math.huge then
    -- Nobody knows when it wakes: it is looked at ever more rarely.
    due = now + math.max(idle, now - quiet)
  elseif rests then
    due = rests + idle
  end
  if due <= now then
    return false
  end
  arm({ timer[1], due, timer[3], timer[4] }, true)
  answer.rearmed = 1
  return true
end

function operations.expire(commit, op, answer)
  local target, timer, idle, since = op[2], op[3], op[4], op[5]
  local step = commit[1]
  local row, merge = barrier(target), merges().row(target)
  local closer = row and row.closer or merge and merge.closer or ''
  if closer == step then
    answer.release = row and text_of(row, 'release') or nil
    answer.opened = merge and { merge.id } or nil
    return
  end
  local waiting = (row and not row.closed) or (merge and merge.state == 'waiting')
  if not waiting or postponed(timer, idle, since, answer) then
    return
  end
  if row then
    close(row, step, 'timeout', answer)
  else
    merges().close(merge, 'timeout', step, answer)
    merges().save(merge)
    settle(commit, { 'settle', 1, nil, '', '', nil, nil }, answer)
  end
end

operations['end'] = function(commit, op, answer)
  local status, error, reason, context = op[2], op[3], op[4], op[5]
  end_execution(commit, 'context', status, error, reason, context, answer)
end

-- --- commits ---

-- End a branch whose item has failed; a time-out is none, and neither is a reader.
local function drop(commit, answer)
  if commit[5] then
    extend(commit, { 'extend', 0, true, '', '', nil }, answer)
    return
  end
  for _, op in ipairs(commit[3]) do
    if op[1] == 'expire' then
      return
    end
  end
  settle(commit, { 'settle', -1, nil, '', '', nil, nil }, answer)
end

local function carry_out(commit)
  local answer = gate(commit[1], commit[2])
  if answer then
    if answer.dropped then
      drop(commit, answer)
    end
    return answer
  end
  answer = {}
  for _, op in ipairs(commit[3]) do
    if operations[op[1]](commit, op, answer) == false then
      break
    end
  end
  return answer
end

local function flat(answer)
  if next(answer) == nil then
    return 0
  end
  local list = {}
  for name, value in pairs(answer) do
    list[#list + 1] = name
    list[#list + 1] = value
  end
  return list
end

if not execution.known and ARGV[2] ~= 'new' then
  return 'unknown'
elseif execution.buried then
  return 'buried'
end
local commits, answers, progress = cmsgpack.unpack(ARGV[3]), {}, true
for _, commit in ipairs(commits) do
  -- That a time-out was looked at is no progress.
  progress = progress and not (commit[3][1] and commit[3][1][1] == 'expire')
end
if progress then
  touch()
end
for i, commit in ipairs(commits) do
  answers[i] = flat(carry_out(commit))
end
return { answers, to_index, garbage and 1 or 0 }
