-- How scopes end, and how the slots of a fan-out fill until its barrier closes.
-- Not a script: the loader puts it before apply.lua. Every function changes `answer`.

local function close(row, step, failure, answer)
  row.closed, row.closer = true, step
  call('HSET', prefix .. 'b:' .. row.id, 'closed', 1, 'closer', step, 'failure', failure,
    'done', call('HLEN', prefix .. 'i:' .. row.id))
  answer.release = text_of(row, 'release')
  if row.timer ~= '' then
    disarm(row.timer)
  end
end

-- Let more items of a window start; a quarter of it at a time makes for fewer, fuller refills. An empty range lets a
-- lazy source be read on, and so does a third word; what is read has room to be published.
local function refill(row, step, done, answer)
  local least, first = math.max(1, math.floor(row.window / 4)), row.published
  local room = row.window - (first - done)
  if room < least then
    return
  end
  row.published = math.min(row.total, first + room)
  local more = row.published - first
  local reads = row.source == 'idle' and row.published == row.total and room - more >= least
  if reads then
    row.source = 'reading'
  elseif more == 0 then
    return
  end
  call('HSET', prefix .. 'b:' .. row.id, 'published', row.published, 'source', row.source)
  answer.refill = first .. ' ' .. row.published .. (reads and more > 0 and ' reads' or '')
  answer.refill_task = text_of(row, 'refill')
  call('HSET', prefix .. 'f:' .. row.id, step, answer.refill)
end

-- Close a barrier whose items have all ended, or let more of them start.
local function go_on(row, step, done, answer)
  if done == known_total(row) then
    local hopeless = row.need_success and row.failed > 0 and done == row.failed + row.skipped
    close(row, step, hopeless and 'items' or '', answer)
  elseif row.window > 0 then
    refill(row, step, done, answer)
  end
end

-- Give a step the answer that it had from this barrier; true if it had one.
local function answer_again(row, step, answer)
  if row.closed and row.closer == step then
    answer.release = text_of(row, 'release')
    return true
  end
  local given = row.window > 0 and call('HGET', prefix .. 'f:' .. row.id, step)
  if given then
    answer.refill, answer.refill_task = given, text_of(row, 'refill')
    return true
  end
  return false
end

-- The source that the step reads was read on: `op` is {_, count, ended, refill, release, failure}.
local function extend(commit, op, answer)
  local step, row = commit[1], barrier(commit[5])
  if not row or answer_again(row, step, answer) or row.closed or row.source ~= 'reading' then
    return
  end
  local key = prefix .. 'b:' .. row.id
  row.total, row.source = row.total + op[2], op[3] and '' or 'idle'
  call('HSET', key, 'total', row.total, 'source', row.source)
  if op[4] ~= '' then
    call('HSET', key, 'refill', op[4])
  end
  if op[5] ~= '' then
    call('HSET', key, 'release', op[5])
  end
  if op[6] then
    call('HSET', key, 'first_error', op[6])
    close(row, step, 'source', answer)
  else
    go_on(row, step, call('HLEN', prefix .. 'i:' .. row.id), answer)
  end
end

-- One branch's result as it is; several as an object by the node each came from, a list where one came twice.
local function combined(ends)
  if #ends == 1 then
    return ends[1].data
  end
  local nodes, by_node, members = {}, {}, {}
  for _, row in ipairs(ends) do
    if not by_node[row.node] then
      by_node[row.node] = {}
      nodes[#nodes + 1] = row.node
    end
    table.insert(by_node[row.node], row.data)
  end
  for i, node in ipairs(nodes) do
    local data = by_node[node]
    members[i] = cjson.encode(node) .. ':' .. (#data == 1 and data[1] or '[' .. table.concat(data, ',') .. ']')
  end
  return '{' .. table.concat(members, ',') .. '}'
end

-- The slot's value: the result or the error; empty for a skipped item. Tells the barrier's row, too.
local function outcome(row, error, ends)
  local key = prefix .. 'b:' .. row.id
  if error then
    row.failed = call('HINCRBY', key, 'failed', 1)
    call('HSETNX', key, 'first_error', error)
    return '{"error":' .. error .. '}'
  end
  if #ends == 0 then
    row.skipped = call('HINCRBY', key, 'skipped', 1)
    return ''
  end
  local numbers = ends[1].folds
  if numbers and #numbers > 0 then
    call('HSET', key, 'folds', folds()(call('HGET', key, 'folds'), numbers))
  end
  return row.keep_results and combined(ends) or 'null'
end

local function fill_slot(commit, error, ends, answer)
  local step, last = commit[1], commit[2][#commit[2]]
  local row = barrier(last[1])
  call('HSET', prefix .. 'i:' .. row.id, last[2], outcome(row, error, ends))
  -- Members are counted, never arrivals.
  local done = call('HLEN', prefix .. 'i:' .. row.id)
  answer.progress = { done, known_total(row), row.failed, row.skipped }
  if error and row.tolerated and row.failed > row.tolerated then
    close(row, step, 'items', answer)
  else
    go_on(row, step, done, answer)
  end
end

-- End the execution: `how` is where its contexts are, "ends" or "context".
local function end_execution(commit, how, status, error, reason, context, answer)
  local step, started = commit[1], exact(commit[4])
  execution.ended, execution.closer = how, step
  call('HDEL', X, 'error', 'context')
  call('HSET', X, 'ended', how, 'closer', step, 'status', status, 'at', ARGV[1], 'reason', reason,
    'started', started)
  call('HSETNX', X, 'since', ARGV[1])
  if error then
    call('HSET', X, 'error', error)
  end
  if context then
    call('HSET', X, 'context', context)
  end
  answer.ending = ending()
end

local function end_scope(commit, error, finish, answer)
  local step, place = commit[1], commit[2]
  local key = scope_key(place)
  if key == '' then
    if finish then
      call('HSET', prefix .. 'e:', step, finish)
    end
    end_execution(commit, 'ends', 'completed', nil, '', nil, answer)
    return
  end
  local ends = scope(key) and ends_of(key) or {}
  if finish then
    ends[#ends + 1] = end_row(finish)
    table.sort(ends, before)
  end
  forget_scope(place[#place][1], place[#place][2])
  fill_slot(commit, error, ends, answer)
end

-- `op` is {_, change, end, path, node, folds, error}.
local function settle(commit, op, answer)
  local step, place = commit[1], commit[2]
  local key = scope_key(place)
  local row, finish = scope(key), nil
  if op[3] then
    local number = row and call('HLEN', prefix .. 'e:' .. key) or 0
    finish = cmsgpack.pack({ number, op[4], op[5], op[3], op[6] })
  end
  if not row then
    row = { live = width(place), error = false }
    if row.live + op[2] == 0 then
      -- One branch all along, and it ends: nothing was kept, nothing has to be.
      end_scope(commit, op[7], finish, answer)
      return
    end
  elseif call('HEXISTS', prefix .. 's:' .. key, 't:' .. step) == 1 then
    return
  end
  row = { live = row.live + op[2], error = row.error or op[7] }
  if row.live == 0 then
    end_scope(commit, row.error, finish, answer)
    return
  end
  save_scope(place, row)
  call('HSET', prefix .. 's:' .. key, 't:' .. step, 1)
  if finish then
    call('HSET', prefix .. 'e:' .. key, step, finish)
  end
end
