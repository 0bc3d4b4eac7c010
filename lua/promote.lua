-- promote.lua: move due members to their queues, each only if it is still there. [SCHED-5] [SCHED-7]
-- KEYS[1]  schedule or retry set    KEYS[2]  set of queue names    KEYS[3..]  queue lists
-- ARGV[1..]  fours: member (exact bytes), number of its queue (1 is KEYS[3]), queue name,
--            payload to push
-- Returns  {how many this call moved, how many stay because their queue is not a list};
--          the others were taken by another promoter
-- A script is not rolled back. So a member is added to its new place before it goes, and a rule that
-- refuses a command that removes is found by a call without effect.
redis.call("ZREM", KEYS[1], "\0")
local moved, stuck = 0, 0
local usable, registered = {}, {}
for i = 1, #ARGV, 4 do
  local number = ARGV[i + 1]
  local queue = KEYS[2 + number]
  if usable[number] == nil then
    local kind = redis.call("TYPE", queue).ok
    usable[number] = kind == "list" or kind == "none"
  end
  if redis.call("ZSCORE", KEYS[1], ARGV[i]) then
    if usable[number] then
      if not registered[number] then
        redis.pcall("SADD", KEYS[2], ARGV[i + 2])
        registered[number] = true
      end
      redis.call("LPUSH", queue, ARGV[i + 3])
      redis.call("ZREM", KEYS[1], ARGV[i])
      moved = moved + 1
    else
      stuck = stuck + 1
    end
  end
end
return { moved, stuck }
