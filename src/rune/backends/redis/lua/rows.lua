-- What every script over one execution shares: the names of its keys, its rows, and how rows are forgotten.
-- Not a script: the loader puts it before those that ask for it.
--
-- KEYS[1] is always exec:{<execution>}:x. The braces make the id the hash tag, so that all the keys of one
-- execution are in one slot. Below the prefix exec:{<execution>}: there are
--
--   x            hash    the execution: since, touched, paused, turn (in which variables were set last); then ended,
--                        closer, status, at, error, reason, context, started; then burying; at last only buried, which
--                        goes by its TTL
--   s:<scope>    hash    a scope: live, error; of its steps t:<step> (has settled), r: (record), f: (fence),
--                        l: (leased until), h: (lease holder), p: (attempts spent), o: (the turn in which its
--                        record set variables), w: (those it sets when it is met). The root's name is empty
--   e:<scope>    hash    what branches left that ended in the scope, by step
--   n:<scope>    set     b<barrier> and m<merge>: what was opened in the scope
--   b:<barrier>  hash    a fan-out's row     i:<barrier>  hash  its slots by item; "" is skipped
--   f:<barrier>  hash    refills by step: "<from> <to>", and "reads" if the source is to be read on, too
--   o:<barrier>  set     items that have a scope row
--   m:<merge>    hash    a merge's row; a:<member> are its arrivals, "" if skipped, "<order> <payload>" if live
--   timers, sleepers     hash  timers by id, those in which a branch rests apart: "<due> <claimed until> <task>"
--   disarmed     set     timers that are no more, but may still stand in the due index
--   leases       zset    leased steps by the time their lease ends       leased  hash  the scopes of these steps
--   g            set     barriers whose left-behind items are still to be swept    sown  set  those with seeded items
--   v            hash    stored values by hash                           parked  hash  parked Tasks by step
--   c            hash    variables of the execution                     ct      hash  the turns in which they were set
--   unparked     hash    those that are being published, since the execution goes on
--   kept         set     values to keep that burying has not moved to rest, a hash that becomes v
--
-- A scope that ends is a bounded number of keys to unlink, whatever is in them.

local call = redis.call
local X = KEYS[1]
local prefix = string.sub(X, 1, -2)

-- Lua writes numbers with 14 digits; times need 17.
local function exact(number)
  return string.format('%.17g', number)
end

-- Bytes, not the server's locale, decide.
local function less(a, b)
  for i = 1, math.min(#a, #b) do
    local x, y = string.byte(a, i), string.byte(b, i)
    if x ~= y then
      return x < y
    end
  end
  return #a < #b
end

-- --- scopes and barriers, each read once a script ---

local barriers, scopes = {}, {}

local BARRIER = {
  'total', 'width', 'window', 'published', 'tolerated', 'need_success', 'keep_results', 'timer', 'failed',
  'skipped', 'closed', 'closer', 'source',
}

local function barrier(id)
  local known = barriers[id]
  if known == nil then
    local f = call('HMGET', prefix .. 'b:' .. id, unpack(BARRIER))
    known = f[1] and {
      id = id, total = tonumber(f[1]), width = tonumber(f[2]), window = tonumber(f[3]),
      published = tonumber(f[4]), tolerated = tonumber(f[5]), need_success = f[6] == '1',
      keep_results = f[7] == '1', timer = f[8], failed = tonumber(f[9]), skipped = tonumber(f[10]),
      closed = f[11] == '1', closer = f[12], source = f[13] or '',
    } or false
    barriers[id] = known
  end
  return known
end

-- How many items there are; false while a lazy source is being read.
local function known_total(row)
  return row.source == '' and row.total
end

local function text_of(barrier_row, field)
  return call('HGET', prefix .. 'b:' .. barrier_row.id, field)
end

local function scope_key(place)
  local last = place[#place]
  return last and last[1] .. '.' .. last[2] or ''
end

local function scope(key)
  local known = scopes[key]
  if known == nil then
    local f = call('HMGET', prefix .. 's:' .. key, 'live', 'error')
    known = f[1] and { live = tonumber(f[1]), error = f[2] } or false
    scopes[key] = known
  end
  return known
end

local function width(place)
  local last = place[#place]
  local around = last and barrier(last[1])
  return around and around.width or 1
end

local function save_scope(place, row)
  local key, last = scope_key(place), place[#place]
  if not scopes[key] and last then
    call('SADD', prefix .. 'o:' .. last[1], last[2])
  end
  scopes[key] = row
  call('HSET', prefix .. 's:' .. key, 'live', row.live)
  if row.error then
    call('HSET', prefix .. 's:' .. key, 'error', row.error)
  end
end

-- Give the scope a row, so that what is keyed to it is found when it ends.
local function own(place)
  if not scope(scope_key(place)) then
    save_scope(place, { live = width(place), error = false })
  end
end

-- --- forgetting ---

local garbage = false

-- Unlink what was opened in a scope, at most `limit` things of it; true if that was all.
local function forget_opened(key, limit)
  local opened = prefix .. 'n:' .. key
  for _, name in ipairs(call('SRANDMEMBER', opened, limit)) do
    local id = string.sub(name, 2)
    if string.sub(name, 1, 1) == 'm' then
      call('UNLINK', prefix .. 'm:' .. id)
    else
      call('UNLINK', prefix .. 'b:' .. id, prefix .. 'i:' .. id, prefix .. 'f:' .. id)
      barriers[id] = false
      -- Items left behind by an early end: any number of them, so they are swept in later calls.
      if call('EXISTS', prefix .. 'o:' .. id) == 1 then
        call('SADD', prefix .. 'g', id)
        garbage = true
      end
    end
    call('SREM', opened, name)
  end
  return call('EXISTS', opened) == 0
end

local function forget_scope(barrier_id, item)
  local key = barrier_id .. '.' .. item
  if scope(key) then
    forget_opened(key, 1000000)
    call('UNLINK', prefix .. 's:' .. key, prefix .. 'e:' .. key)
    call('SREM', prefix .. 'o:' .. barrier_id, item)
    scopes[key] = false
  end
end

-- Forget items that were left behind, at most `limit` of them; true if that was all.
local function sweep(limit)
  while limit > 0 do
    local id = call('SRANDMEMBER', prefix .. 'g')
    if not id then
      return true
    end
    local items = call('SRANDMEMBER', prefix .. 'o:' .. id, limit)
    for _, item in ipairs(items) do
      forget_scope(id, item)
      call('SREM', prefix .. 'o:' .. id, item)
      -- Seeds of an item that was never met.
      call('UNLINK', prefix .. 's:' .. id .. '.' .. item)
    end
    if #items < limit then
      call('SREM', prefix .. 'g', id)
    end
    limit = limit - #items - 1
  end
  return call('EXISTS', prefix .. 'g') == 0
end
