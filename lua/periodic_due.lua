-- periodic_due.lua: return the ticks that no process has taken yet. [X-CRON-15]
-- KEYS[1..]  sorted sets of ticks that were taken
-- ARGV[1..]  for each of them, the member of a tick
-- Returns  numbers of the sets that do not have the member (1 is KEYS[1])
local free = {}
for i = 1, #KEYS do
  local kind = redis.call("TYPE", KEYS[i]).ok
  if kind == "none" or (kind == "zset" and not redis.call("ZSCORE", KEYS[i], ARGV[i])) then
    free[#free + 1] = i
  end
end
return free
