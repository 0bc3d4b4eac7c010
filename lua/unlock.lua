-- unlock.lua: release the lock of a unique job, and before that remove the job from its place.
-- [X-UNIQ-7] [X-UNIQ-8]
-- KEYS[1]  lock    KEYS[2]  queue list, or sorted set; without it nothing is removed
-- ARGV[1]  id of the job, which must have the lock    ARGV[2]  payload (exact bytes)
-- Returns  1 if the job was removed; without a place, if the lock was released; otherwise 0
if KEYS[2] then
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
if redis.pcall("GET", KEYS[1]) == ARGV[1] then
  redis.pcall("UNLINK", KEYS[1])
  return 1
end
return KEYS[2] and 1 or 0
