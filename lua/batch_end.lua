-- batch_end.lua: end a member of a batch, or close or cancel the batch; push the callbacks that are due.
-- [X-BATCH-4] [X-BATCH-5] [X-BATCH-6] [X-BATCH-7] [X-BATCH-8]
-- KEYS[1]  batch    KEYS[2]  its open members    KEYS[3]  its failed members
-- KEYS[4]  queue list of its callbacks    KEYS[5]  set of queue names
-- KEYS[6]  place to remove the job from before that, a queue list or sorted set; without it nothing
--          is removed
-- KEYS[7]  with `dead`: sorted set of dead jobs, which the job moves to from its sorted set
-- KEYS[7]  otherwise: result of the job    KEYS[8]  sorted set of cancelled jobs: id -> when
-- KEYS[9]  state of an iteration; without these three no result is kept and no mark removed
-- KEYS[10..]  lock of the job, if ARGV[8] is 1: the last key, also where there are fewer
-- ARGV[1]  `done`, `dead` or `dropped`: how the job ended; `closed`, `cancelled`: the batch is that
-- ARGV[2]  id of the job    ARGV[3]  queue name of the callbacks    ARGV[4]  JSON text of the time now
-- ARGV[5]  payload (exact bytes)    ARGV[6]  seconds to keep the result
-- ARGV[7]  result; empty: it is not kept    ARGV[8]  1 if the last key is a lock to release, else 0
-- ARGV[9]  now, Unix seconds    ARGV[10]  score up to which the dead are forgotten
-- ARGV[11]  size limit; these three with the set of dead jobs only
-- Returns  1; 0 if the job was not in its place, or the batch does not exist any more, and nothing
--          was changed
local how, jid = ARGV[1], ARGV[2]
local lock = ARGV[8] == "1" and #KEYS
local kind = redis.call("TYPE", KEYS[4]).ok
if kind ~= "list" and kind ~= "none" then
  return redis.error_reply("WRONGTYPE " .. KEYS[4] .. " is not a list")
end
local was_open = redis.call("SISMEMBER", KEYS[2], jid) == 1
local had_failed = redis.call("SISMEMBER", KEYS[3], jid) == 1
local left = redis.call("SCARD", KEYS[2]) - (was_open and 1 or 0)
local lost = redis.call("SCARD", KEYS[3]) - (had_failed and 1 or 0)
local state = redis.call("HGET", KEYS[1], "state")
if state then
  -- A script is not rolled back. So a rule that refuses a command that follows is found by a call
  -- without effect. LPUSH to a hash only says whether LPUSH is allowed.
  redis.call("SREM", KEYS[2], "")
  redis.call("HDEL", KEYS[1], "")
  redis.call("HSET", KEYS[1], "state", state)
  redis.call("SADD", KEYS[5], ARGV[3])
  local refused = redis.pcall("LPUSH", KEYS[1], "").err
  if not string.find(refused, "WRONGTYPE") then
    return redis.error_reply(refused)
  end
end
if KEYS[6] and how == "dead" then
  local dead = redis.call("TYPE", KEYS[7]).ok
  if dead ~= "zset" and dead ~= "none" then
    return redis.error_reply("WRONGTYPE " .. KEYS[7] .. " is not a sorted set")
  end
  redis.call("ZREM", KEYS[6], "\0")
  redis.call("ZREMRANGEBYSCORE", KEYS[7], 1, 0)
  redis.call("ZREMRANGEBYRANK", KEYS[7], 1, 0)
  if not redis.call("ZSCORE", KEYS[6], ARGV[5]) then
    return 0
  end
  redis.call("ZADD", KEYS[7], ARGV[9], ARGV[5])
  redis.call("ZREM", KEYS[6], ARGV[5])
  redis.call("ZREMRANGEBYSCORE", KEYS[7], "-inf", ARGV[10])
  -- Ranks 0 to -limit leave limit - 1 jobs: Sidekiq's own off-by-one, kept on purpose. [DEAD-3]
  redis.call("ZREMRANGEBYRANK", KEYS[7], 0, -tonumber(ARGV[11]))
elseif KEYS[6] then
  local removed
  if redis.call("TYPE", KEYS[6]).ok == "list" then
    removed = redis.call("LREM", KEYS[6], -1, ARGV[5])
  else
    removed = redis.call("ZREM", KEYS[6], ARGV[5])
  end
  if removed == 0 then
    return 0
  end
end
-- pcall: a lock of another type must not undo the removal.
local holder = lock and redis.pcall("GET", KEYS[lock])
if holder == jid then
  redis.pcall("UNLINK", KEYS[lock])
elseif type(holder) == "table" then -- a hash, as sidekiq-unique-jobs has
  redis.pcall("HDEL", KEYS[lock], jid)
end
if KEYS[9] then
  -- pcall: a result that cannot be written must not undo the removal.
  if ARGV[7] ~= "" then
    redis.pcall("SET", KEYS[7], ARGV[7], "EX", ARGV[6])
  end
  redis.pcall("ZREM", KEYS[8], jid)
  redis.pcall("DEL", KEYS[9])
end
local of_batch = how == "closed" or how == "cancelled"
if not state or not (of_batch or was_open or had_failed) then
  return KEYS[6] and 1 or 0
end
local due = how == "dead" and { "on_death" } or {}
if how == "closed" and state == "open" then
  state = "closed"
elseif how == "cancelled" then
  state = "cancelled"
  redis.call("HDEL", KEYS[1], "on_death", "on_complete", "on_success")
end
local completes = left == 0 and state ~= "open"
if completes then
  due[#due + 1] = "on_complete"
end
if completes and lost == 0 and (how == "done" or of_batch) then
  due[#due + 1] = "on_success"
end
for _, name in ipairs(due) do
  local callback = redis.call("HGET", KEYS[1], name)
  if callback then
    local at = ',"enqueued_at":' .. ARGV[4] .. "}"
    redis.call("LPUSH", KEYS[4], string.sub(callback, 1, -2) .. at)
    redis.call("HDEL", KEYS[1], name)
  end
end
if was_open then
  redis.call("SREM", KEYS[2], jid)
end
if how == "done" then
  redis.call("SREM", KEYS[3], jid)
elseif not of_batch then
  redis.call("SADD", KEYS[3], jid)
end
redis.call("HSET", KEYS[1], "state", completes and state == "closed" and "complete" or state)
redis.pcall("EXPIRE", KEYS[1], 2592000)
redis.pcall("EXPIRE", KEYS[2], 2592000)
redis.pcall("EXPIRE", KEYS[3], 2592000)
return 1
