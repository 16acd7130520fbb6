-- Folds: sum, count, least and greatest of numbers, exact and the same in any order of arrival.
-- Not a script but a module, made only when it is asked for.
--
-- A number arrives as {<its text>, <double>, <double>…}, the doubles adding up to it exactly, the largest
-- first: an integer beyond 2^53 is several. The sum is kept as partials that do not overlap (Shewchuk 1997), which
-- hold it exactly; Python adds them up at last. A fold is {whole, count, least, greatest, partials}, kept as
-- text, since packing would turn large doubles into integers.

local function add_partial(partials, x)
  local kept = {}
  for _, y in ipairs(partials) do
    if math.abs(x) < math.abs(y) then
      x, y = y, x
    end
    local high = x + y
    -- Beyond the largest double there is nothing to be exact about.
    if math.abs(high) == math.huge then
      return { high }
    end
    local low = y - (high - x)
    if low ~= 0 then
      kept[#kept + 1] = low
    end
    x = high
  end
  kept[#kept + 1] = x
  return kept
end

-- Compare two numbers by their doubles, then by their text: 1 and 1.0 differ, so that who came first does not matter.
local function lower(a, b)
  for i = 2, math.max(#a, #b) do
    local x, y = a[i] or 0, b[i] or 0
    if x ~= y then
      return x < y
    end
  end
  return less(a[1], b[1])
end

local function doubles(text)
  local numbers = {}
  for part in string.gmatch(text, '%S+') do
    numbers[#numbers + 1] = tonumber(part)
  end
  return numbers
end

local function text(numbers, first)
  local parts = {}
  for i = first, #numbers do
    parts[#parts + 1] = string.format('%.17g', numbers[i])
  end
  return table.concat(parts, ' ')
end

local function bound(packed)
  local known = doubles(packed[2])
  table.insert(known, 1, packed[1])
  return known
end

-- Fold `values` into the packed folds of a barrier (or nothing yet); the packed folds that result.
return function(packed, values)
  local all = packed and cmsgpack.unpack(packed) or {}
  for i, value in ipairs(values) do
    local whole = string.find(value[1], '[.eE]') == nil and 1 or 0
    local own = { value[1], text(value, 2) }
    local known = all[i] or { 1, 0, own, own, '' }
    local partials = doubles(known[5])
    for j = 2, #value do
      partials = add_partial(partials, value[j])
    end
    all[i] = {
      known[1] * whole,
      known[2] + 1,
      lower(value, bound(known[3])) and own or known[3],
      lower(bound(known[4]), value) and own or known[4],
      text(partials, 1),
    }
  end
  return cmsgpack.pack(all)
end
