-- kill_due.lua: move due members that are not payloads to the dead set, byte for byte.
-- [SCHED-9] [EXEC-4] [DEAD-2] [DEAD-3]
-- KEYS[1]  schedule or retry set    KEYS[2]  dead set, or the set of JSON that is not an object
-- ARGV[1]  now, Unix seconds    ARGV[2]  score up to which the dead are forgotten
-- ARGV[3]  size limit           ARGV[4..]  members (exact bytes)
-- Returns  the members that this call moved
local kind = redis.call("TYPE", KEYS[2]).ok
if kind ~= "zset" and kind ~= "none" then
  return redis.error_reply("WRONGTYPE " .. KEYS[2] .. " is not a sorted set")
end
-- A script is not rolled back. So a member is added to its new place before it goes, and a rule that
-- refuses a command that removes or trims is found by a call without effect.
redis.call("ZREM", KEYS[1], "\0")
redis.call("ZREMRANGEBYSCORE", KEYS[2], 1, 0)
redis.call("ZREMRANGEBYRANK", KEYS[2], 1, 0)
local moved = {}
for i = 4, #ARGV do
  if redis.call("ZSCORE", KEYS[1], ARGV[i]) then
    redis.call("ZADD", KEYS[2], ARGV[1], ARGV[i])
    redis.call("ZREM", KEYS[1], ARGV[i])
    moved[#moved + 1] = ARGV[i]
  end
end
redis.call("ZREMRANGEBYSCORE", KEYS[2], "-inf", ARGV[2])
-- Ranks 0 to -limit leave limit - 1 jobs: Sidekiq's own off-by-one, kept on purpose. [DEAD-3]
redis.call("ZREMRANGEBYRANK", KEYS[2], 0, -tonumber(ARGV[3]))
return moved
