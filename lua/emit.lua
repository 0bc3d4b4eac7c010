-- emit.lua: append items to the output of a job, or the end of an execution if there is an output.
-- [X-STEP-7] [X-STEP-9] [X-STEP-10]
-- KEYS[1]  output of the job: stream; the id of an entry is `<Unix milliseconds>-<number from 1>`
-- ARGV[1]  `item` or `end`    ARGV[2]  number of entries to keep    ARGV[3]  seconds to keep them
-- ARGV[4]  now, Unix milliseconds    ARGV[5]  name of the execution
-- ARGV[6..]  items, each one JSON text; or how the execution ended
-- Returns  id of the last entry, or nil for an end without an output
local last = redis.call("XREVRANGE", KEYS[1], "+", "-", "COUNT", 1)[1]
if not last and ARGV[1] == "end" then
  return false
end
local at, number = tonumber(ARGV[4]), 0
if last then -- the numbers go on, and clocks that differ must not stop the job
  local before, count = string.match(last[1], "(%d+)-(%d+)")
  at, number = math.max(at, tonumber(before)), tonumber(count)
end
local id
for i = 6, #ARGV do
  number = number + 1
  id = string.format("%.0f-%.0f", at, number)
  redis.call("XADD", KEYS[1], "MAXLEN", "~", ARGV[2], id, "run", ARGV[5], ARGV[1], ARGV[i])
end
if ARGV[1] == "item" then
  redis.call("EXPIRE", KEYS[1], ARGV[3])
end
return id
