-- The gate that each step passes first, and the old answers for those who come again.
-- Not a script: the loader puts it before those that ask for it, after rows.lua and execution.lua.

-- What a branch left sorts by its path, number by number, then by node, then by which came first.
local function before(a, b)
  local p, q = a.path, b.path
  for i = 1, math.min(#p, #q) do
    if p[i] ~= q[i] then
      return p[i] < q[i]
    end
  end
  if #p ~= #q then
    return #p < #q
  end
  if a.node ~= b.node then
    return less(a.node, b.node)
  end
  return a.number < b.number
end

local function end_row(packed)
  local number, path, node, data, folds = unpack(cmsgpack.unpack(packed), 1, 5)
  local parts = {}
  for part in string.gmatch(path, '[^.]+') do
    parts[#parts + 1] = tonumber(part)
  end
  return { number = number, path = parts, node = node, data = data, folds = folds }
end

-- What branches left in a scope, in order.
local function ends_of(key)
  local rows = {}
  for i, packed in ipairs(call('HVALS', prefix .. 'e:' .. key)) do
    rows[i] = end_row(packed)
  end
  table.sort(rows, before)
  return rows
end

-- The ending as it was told first, for whoever has to tell it.
local function ending()
  local f = call('HMGET', X, 'status', 'at', 'error', 'reason', 'context', 'started')
  local contexts = {}
  if execution.ended == 'ends' then
    for i, row in ipairs(ends_of('')) do
      contexts[i] = row.data
    end
  elseif f[5] then
    contexts[1] = f[5]
  end
  return { f[1], f[2], f[3], f[4], contexts, f[6] }
end

-- Why nothing may be done here any more, with the old answer for whoever closed something; nil lets pass.
local function gate(step, place)
  if execution.ended then
    return { gone = true, ending = execution.closer == step and ending() or nil }
  end
  if execution.burying then
    return { gone = true }
  end
  local failed = false
  for _, frame in ipairs(place) do
    local id, item = frame[1], frame[2]
    local row = barrier(id)
    if not row then
      return { gone = true }
    end
    if row.closed or call('HEXISTS', prefix .. 'i:' .. id, item) == 1 then
      local answer = { gone = true, release = row.closer == step and text_of(row, 'release') or nil }
      local refill = row.window > 0 and call('HGET', prefix .. 'f:' .. id, step)
      if refill then
        answer.refill, answer.refill_task = refill, text_of(row, 'refill')
      end
      return answer
    end
    local inner = scope(id .. '.' .. item)
    failed = failed or (inner and inner.error)
  end
  return failed and { dropped = true } or nil
end
