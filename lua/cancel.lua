-- cancel.lua: remove a cancelled job from the place where it waits, and keep its result.
-- [X-CANCEL-4] [X-CANCEL-5] [X-RESULT-2] [X-UNIQ-8] [X-ADDON-7]
-- KEYS[1]  queue list, or schedule or retry set    KEYS[2]  result of the job
-- KEYS[3]  sorted set of cancelled jobs: id -> when    KEYS[4]  state of an iteration
-- KEYS[5]  lock to release if the job has it; without it none
-- ARGV[1]  payload (exact bytes)    ARGV[2]  id of the job
-- ARGV[3]  seconds to keep the result    ARGV[4]  result; empty: it is not kept
-- Returns  1, or 0 if the job was not there and nothing was changed
local removed
if redis.call("TYPE", KEYS[1]).ok == "list" then
  removed = redis.call("LREM", KEYS[1], -1, ARGV[1])
else
  removed = redis.call("ZREM", KEYS[1], ARGV[1])
end
if removed == 1 then
  -- pcall: a result that cannot be written must not undo the removal.
  if ARGV[4] ~= "" then
    redis.pcall("SET", KEYS[2], ARGV[4], "EX", ARGV[3])
  end
  redis.pcall("ZREM", KEYS[3], ARGV[2])
  redis.pcall("DEL", KEYS[4])
  local holder = KEYS[5] and redis.pcall("GET", KEYS[5])
  if holder == ARGV[2] then
    redis.pcall("UNLINK", KEYS[5])
  elseif type(holder) == "table" then -- a hash, as sidekiq-unique-jobs has
    redis.pcall("HDEL", KEYS[5], ARGV[2])
  end
end
return removed
