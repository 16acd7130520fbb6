-- The execution's own row.
-- Not a script: the loader puts it before those that ask for it, after rows.lua. ARGV[1] is the time.

local now = tonumber(ARGV[1])
local execution
do
  local f = call('HMGET', X, 'since', 'touched', 'ended', 'closer', 'buried', 'burying')
  execution = {
    known = f[1] or f[5] or f[6], touched = tonumber(f[2] or 0), ended = f[3], closer = f[4], buried = f[5],
    burying = f[6],
  }
end
-- Default time-outs ask when something last happened; to the second is enough.
local function touch()
  if now - execution.touched > 1 and not execution.ended then
    execution.touched = now
    call('HSET', X, 'touched', ARGV[1])
    call('HSETNX', X, 'since', ARGV[1])
  end
end
