-- Timers in the execution's own slot, which are the truth; the due index follows them.
-- Not a script: the loader puts it before those that ask for it, after rows.lua.

-- What the caller has to do in the due index before it answers: {id, "due" | "claimed" | "gone", time}.
local to_index = {}

local function timer_of(id)
  local sleeping = true
  local text = call('HGET', prefix .. 'sleepers', id)
  if not text then
    sleeping = false
    text = call('HGET', prefix .. 'timers', id)
  end
  if not text then
    return nil
  end
  local first = string.find(text, ' ', 1, true)
  local second = string.find(text, ' ', first + 1, true)
  return {
    sleeping = sleeping,
    due = string.sub(text, 1, first - 1),
    claimed = string.sub(text, first + 1, second - 1),
    task = string.sub(text, second + 1),
  }
end

local function save_timer(id, timer)
  local text = timer.due .. ' ' .. timer.claimed .. ' ' .. timer.task
  call('HSET', prefix .. (timer.sleeping and 'sleepers' or 'timers'), id, text)
end

-- Have the index say what is true, also if a crash kept an earlier call from doing so.
local function index(id)
  local timer = timer_of(id)
  if timer and timer.claimed ~= '-' then
    to_index[#to_index + 1] = { id, 'claimed', timer.claimed }
  elseif timer and timer.due ~= '-' then
    to_index[#to_index + 1] = { id, 'due', timer.due }
  end
end

-- `timer` is {id, due, task, sleeping}. The first one of its id stands, unless it is to be replaced.
local function arm(timer, replace)
  local id = timer[1]
  if replace then
    call('HDEL', prefix .. 'timers', id)
    call('HDEL', prefix .. 'sleepers', id)
  end
  if replace or not timer_of(id) then
    local due = timer[2] and exact(timer[2]) or '-'
    save_timer(id, { due = due, claimed = '-', task = timer[3], sleeping = timer[4] })
  end
  index(id)
end

local function disarm(id)
  if call('HDEL', prefix .. 'timers', id) + call('HDEL', prefix .. 'sleepers', id) > 0 then
    call('SADD', prefix .. 'disarmed', id)
    to_index[#to_index + 1] = { id, 'gone', '0' }
  end
end

-- Until when a branch of the execution sleeps in a timer, infinity if nobody knows: of many, some are asked. It is `now`
-- if one only runs under a lease; nil if none does either.
local function resting(now)
  local texts, rests = call('HRANDFIELD', prefix .. 'sleepers', 100, 'WITHVALUES'), now
  for i = 2, #texts, 2 do
    local due, claimed = string.match(texts[i], '^(%S+) (%S+) ')
    rests = math.max(rests, tonumber(claimed) or tonumber(due) or math.huge)
  end
  if #texts > 0 then
    return rests
  end
  for _ = 1, 100 do
    local step = call('ZREVRANGEBYSCORE', prefix .. 'leases', '+inf', '(' .. exact(now), 'LIMIT', 0, 1)[1]
    if not step then
      return nil
    end
    local key = call('HGET', prefix .. 'leased', step)
    if key and call('HEXISTS', prefix .. 's:' .. key, 'f:' .. step) == 1 then
      return now
    end
    -- Its scope has ended, and took the step along.
    call('ZREM', prefix .. 'leases', step)
    call('HDEL', prefix .. 'leased', step)
  end
  -- More of them than one call should clear away: the next one goes on.
  return now
end
