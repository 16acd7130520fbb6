-- Merges: arrivals are members of the merge's hash; the one that decides it is its closer.
-- Not a script but a module, made only when it is asked for. A rule is {merge, expected, need, timer}.

local function merge_row(id)
  local f = call('HMGET', prefix .. 'm:' .. id, 'expected', 'need', 'accounted', 'live', 'state', 'closer', 'timer')
  return f[1] and {
    id = id, expected = tonumber(f[1]), need = tonumber(f[2]), accounted = tonumber(f[3]),
    live = tonumber(f[4]), state = f[5], closer = f[6], timer = f[7],
  }
end

local function merge_of(commit, rule)
  local row = merge_row(rule[1])
  if row then
    return row
  end
  own(commit[2])
  call('SADD', prefix .. 'n:' .. scope_key(commit[2]), 'm' .. rule[1])
  return {
    id = rule[1], expected = rule[2], need = rule[3], accounted = 0, live = 0, state = 'waiting', closer = '',
    timer = '',
  }
end

local function save_merge(row)
  call('HSET', prefix .. 'm:' .. row.id, 'expected', row.expected, 'need', row.need or '', 'accounted', row.accounted,
    'live', row.live, 'state', row.state, 'closer', row.closer, 'timer', row.timer)
end

local function tell(row, answer)
  local list = row.state == 'dead' and 'dead' or 'opened'
  answer[list] = answer[list] or {}
  table.insert(answer[list], row.id)
end

local function close_merge(row, state, step, answer)
  row.state, row.closer = state, step
  tell(row, answer)
  if row.timer ~= '' then
    disarm(row.timer)
  end
end

local function decide(row, step, answer)
  local left = row.expected - row.accounted
  if row.live == 0 then
    if left == 0 then
      close_merge(row, 'dead', step, answer)
    end
  elseif not row.need then
    if left == 0 then
      close_merge(row, 'open', step, answer)
    end
  elseif row.live >= row.need then
    close_merge(row, 'open', step, answer)
  elseif row.live + left < row.need then
    close_merge(row, 'impossible', step, answer)
  end
end

local function has_arrival(row, member)
  return call('HEXISTS', prefix .. 'm:' .. row.id, 'a:' .. member) == 1
end

local function arrive(commit, rule, order, payload, answer)
  local step = commit[1]
  local row = merge_of(commit, rule)
  if has_arrival(row, step) then
    if row.closer == step then
      tell(row, answer)
    end
    if row.timer ~= '' then
      index(row.timer)
    end
    answer.arrived = { row.accounted, row.expected }
    return
  end
  if row.state == 'waiting' then
    call('HSET', prefix .. 'm:' .. row.id, 'a:' .. step, order .. ' ' .. payload)
    row.live, row.accounted = row.live + 1, row.accounted + 1
    if row.live == 1 and rule[4] then
      row.timer = rule[4][1]
      arm(rule[4])
    end
    decide(row, step, answer)
    save_merge(row)
    answer.arrived = { row.accounted, row.expected }
  end
  if row.closer == step then
    call('HSET', prefix .. 'm:' .. row.id, 'winner', step)
  else
    settle(commit, { 'settle', -1, nil, '', '', nil, nil }, answer)
  end
end

local function skip(commit, rule, member, weight, answer)
  local step = commit[1]
  local row = merge_of(commit, rule)
  if has_arrival(row, member) then
    if row.closer == step then
      tell(row, answer)
    end
    return
  end
  if row.state ~= 'waiting' then
    return
  end
  call('HSET', prefix .. 'm:' .. row.id, 'a:' .. member, '')
  row.accounted = row.accounted + weight
  decide(row, step, answer)
  save_merge(row)
end

return { arrive = arrive, skip = skip, row = merge_row, close = close_merge, save = save_merge }
