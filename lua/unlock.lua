-- unlock.lua: release the lock of a unique job, and before that remove or kill the job.
-- [X-UNIQ-7] [X-UNIQ-8] [X-ADDON-3] [X-ADDON-7]
-- KEYS[1]  lock    KEYS[2]  queue list, or sorted set; without it nothing is removed
-- KEYS[3]  dead set, which the job moves to from a sorted set; without it it is deleted
-- ARGV[1]  id of the job, which must have the lock    ARGV[2]  payload (exact bytes)
-- ARGV[3]  now, Unix seconds    ARGV[4]  score up to which the dead are forgotten
-- ARGV[5]  size limit; these three with KEYS[3] only
-- Returns  1 if the job was removed; without a place, if the lock was released; otherwise 0
if KEYS[3] then
  local kind = redis.call("TYPE", KEYS[3]).ok
  if kind ~= "zset" and kind ~= "none" then
    return redis.error_reply("WRONGTYPE " .. KEYS[3] .. " is not a sorted set")
  end
  -- A script is not rolled back. So the job is added before it is removed, and a rule that refuses
  -- a command that removes or trims is found by a call without effect.
  redis.call("ZREM", KEYS[2], "\0")
  redis.call("ZREMRANGEBYSCORE", KEYS[3], 1, 0)
  redis.call("ZREMRANGEBYRANK", KEYS[3], 1, 0)
  if not redis.call("ZSCORE", KEYS[2], ARGV[2]) then
    return 0
  end
  redis.call("ZADD", KEYS[3], ARGV[3], ARGV[2])
  redis.call("ZREM", KEYS[2], ARGV[2])
  redis.call("ZREMRANGEBYSCORE", KEYS[3], "-inf", ARGV[4])
  -- Ranks 0 to -limit leave limit - 1 jobs: Sidekiq's own off-by-one, kept on purpose. [DEAD-3]
  redis.call("ZREMRANGEBYRANK", KEYS[3], 0, -tonumber(ARGV[5]))
elseif KEYS[2] then
  local removed
  if redis.call("TYPE", KEYS[2]).ok == "list" then
    removed = redis.call("LREM", KEYS[2], 1, ARGV[2])
  else
    removed = redis.call("ZREM", KEYS[2], ARGV[2])
  end
  if removed == 0 then
    return 0
  end
end
-- pcall: a lock of another type must not undo the removal.
local holder = redis.pcall("GET", KEYS[1])
local released = holder == ARGV[1]
if released then
  redis.pcall("UNLINK", KEYS[1])
elseif type(holder) == "table" then -- a hash, as sidekiq-unique-jobs has
  released = redis.pcall("HDEL", KEYS[1], ARGV[1]) == 1
end
return (KEYS[2] or released) and 1 or 0
