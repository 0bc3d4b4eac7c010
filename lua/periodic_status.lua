-- periodic_status.lua: enable or disable an entry, if it exists. [X-CRON-36] [X-CRON-37]
-- KEYS[1]  set of entries    KEYS[2]  hash of the entry    KEYS[3]  sorted set of its ticks
-- ARGV[1]  member of KEYS[1]    ARGV[2]  the new status
-- ARGV[3]  text of its latest tick, or an empty text    ARGV[4]  that tick
-- Returns  1 if the status has changed, 0 if not, -1 if there is no such entry
if redis.call("SISMEMBER", KEYS[1], ARGV[1]) == 0 or redis.call("EXISTS", KEYS[2]) == 0 then
  return -1
end
local before = redis.call("HGET", KEYS[2], "status") or "enabled"
if before == ARGV[2] then
  return 0
end
-- Ticks of the time without ticks are not caught up on.
if ARGV[2] == "enabled" and ARGV[3] ~= "" then
  redis.call("ZADD", KEYS[3], "NX", ARGV[4], ARGV[3])
end
redis.call("HSET", KEYS[2], "status", ARGV[2])
return 1
