-- promote.lua: move due members to their queues, each only if it is still there. [SCHED-5] [SCHED-7]
-- KEYS[1]  schedule or retry set    KEYS[2]  set of queue names    KEYS[3..]  queue lists
-- ARGV[1..]  fours: member (exact bytes), number of its queue (1 is KEYS[3]), queue name,
--            payload to push
-- Returns  how many this call moved; the others were taken by another promoter,
--          or their queue is no list
local moved = 0
for i = 1, #ARGV, 4 do
  local queue = KEYS[2 + tonumber(ARGV[i + 1])]
  local kind = redis.call("TYPE", queue).ok
  -- A member whose queue is no list stays: a script is not rolled back when a command fails.
  if (kind == "list" or kind == "none") and redis.call("ZREM", KEYS[1], ARGV[i]) == 1 then
    redis.pcall("SADD", KEYS[2], ARGV[i + 2])
    redis.call("LPUSH", queue, ARGV[i + 3])
    moved = moved + 1
  end
end
return moved
