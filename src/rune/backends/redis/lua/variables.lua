-- Variables of the execution, each with the turn in which it was set.
-- Not a script: the loader makes a module of it for those that ask for it, after rows.lua.

-- Variables are a flat list of names and values. What a later turn has set stays.
local function sow(variables, turn)
  for i = 1, #variables, 2 do
    local name = variables[i]
    if turn > tonumber(call('HGET', prefix .. 'ct', name) or 0) then
      call('HSET', prefix .. 'c', name, variables[i + 1])
      call('HSET', prefix .. 'ct', name, turn)
    end
  end
  if turn > tonumber(call('HGET', X, 'turn') or 0) then
    call('HSET', X, 'turn', turn)
  end
end

-- Set them in the next turn, and say which that is.
local function set(variables)
  local turn = tonumber(call('HGET', X, 'turn') or 0) + 1
  sow(variables, turn)
  return turn
end

return { set = set, sow = sow }
