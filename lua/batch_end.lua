-- batch_end.lua: end a member of a batch, or close or cancel the batch; push the callbacks that are due.
-- [X-BATCH-4] [X-BATCH-5] [X-BATCH-6] [X-BATCH-7] [X-BATCH-8] [X-BATCH-10] [X-BATCH-11]
-- KEYS[1]  batch    KEYS[2]  its open members    KEYS[3]  its failed members
-- KEYS[4..]  queue list of its callbacks; these four of each batch around it; and after them, in this
--            order: set of queue names; place to remove the job from before that, a queue list or
--            sorted set (without it nothing is removed); with `dead` the sorted set of dead jobs,
--            which the job moves to; otherwise the result of the job, the sorted set of cancelled
--            jobs (id -> when) and the state of an iteration (without these three no result is kept
--            and no mark removed); if ARGV[8] is 1, as the last key, the lock of the job
-- ARGV[1]  `done`, `dead` or `dropped`: how the job ended; `closed`, `cancelled`: the batch is that
-- ARGV[2]  id of the job    ARGV[3]  number of batches, with those around it
-- ARGV[4]  JSON text of the time now
-- ARGV[5]  payload (exact bytes)    ARGV[6]  seconds to keep the result
-- ARGV[7]  result; empty: it is not kept    ARGV[8]  1 if the last key is a lock to release, else 0
-- ARGV[9]  now, Unix seconds    ARGV[10]  score up to which the dead are forgotten
-- ARGV[11]  size limit; these three with the set of dead jobs only
-- Returns  1; 0 if the job was not in its place, or the batch does not exist any more, and nothing
--          was changed
local act = (ARGV[1] == "closed" or ARGV[1] == "cancelled") and ARGV[1]
local jid, size = ARGV[2], 4 * ARGV[3]
local lock = ARGV[8] == "1" and #KEYS
local queues, place, dead = size + 1, KEYS[size + 2], KEYS[size + 3]

-- Ends a member in its batch, and a batch that ends with it in the outer batch, whose keys follow.
-- The outer batch is changed first: after a command that is refused the same end still counts.
-- `how` is `done` or `failed`, or nothing if only a death is told. Returns false if nothing changed.
local function end_in(batch, last, member, how, died, at, act)
  local open, failed = KEYS[batch + 1], KEYS[batch + 2]
  local was_open = redis.pcall("SISMEMBER", open, member) == 1
  local had_failed = redis.pcall("SISMEMBER", failed, member) == 1
  local before = redis.pcall("HGET", KEYS[batch], "state")
  if type(before) ~= "string" or not (act or was_open or had_failed) then
    return false
  end
  local state = act == "cancelled" and act or act and before == "open" and act or before
  for outer = batch + 4, last, 4 do
    if redis.pcall("HGET", KEYS[outer], "state") == "cancelled" then
      state = "cancelled"
    end
  end
  local left = redis.call("SCARD", open) - (how and was_open and 1 or 0)
  local lost = redis.call("SCARD", failed) - (had_failed and 1 or 0)
  local completes = (how or act) and left == 0 and state ~= "open"
  local succeeds = completes and lost == 0 and how ~= "failed" and state ~= "cancelled"
  if state == "cancelled" then
    redis.call("HDEL", KEYS[batch], "on_death", "on_complete", "on_success")
  end
  if batch < last and (completes or died) then
    local name = string.match(KEYS[batch], "batch:[^:]*$")
    end_in(batch + 4, last, name, completes and (succeeds and "done" or "failed"), died, at)
  end
  local due = { died and "on_death" or "", completes and "on_complete" or "" }
  due[3] = succeeds and "on_success" or ""
  for _, event in ipairs(due) do
    local callback = event ~= "" and redis.call("HGET", KEYS[batch], event)
    if callback then
      redis.pcall("SADD", KEYS[queues], redis.call("HGET", KEYS[batch], "queue"))
      local enqueued = ',"enqueued_at":' .. at .. "}"
      redis.call("LPUSH", KEYS[batch + 3], string.sub(callback, 1, -2) .. enqueued)
      redis.call("HDEL", KEYS[batch], event)
    end
  end
  if how == "done" then
    redis.call("SREM", failed, member)
  elseif how then
    redis.call("SADD", failed, member)
  end
  if how then
    redis.call("SREM", open, member)
  end
  state = completes and state == "closed" and "complete" or state
  if state ~= before then
    redis.call("HSET", KEYS[batch], "state", state)
  end
  return true
end

for list = 4, size, 4 do
  local kind = redis.call("TYPE", KEYS[list]).ok
  if kind ~= "list" and kind ~= "none" then
    return redis.error_reply("WRONGTYPE " .. KEYS[list] .. " is not a list")
  end
end
local state = redis.call("HGET", KEYS[1], "state")
if state then
  -- A script is not rolled back. So a rule that refuses a command that follows is found by a call
  -- without effect. LPUSH to a hash only says whether LPUSH is allowed.
  redis.call("SCARD", KEYS[2])
  redis.call("SCARD", KEYS[3])
  redis.call("SISMEMBER", KEYS[3], jid)
  redis.call("SREM", KEYS[2], "")
  redis.call("HDEL", KEYS[1], "")
  redis.call("HSET", KEYS[1], "state", state)
  redis.call("SADD", KEYS[queues], redis.call("HGET", KEYS[1], "queue") or "default")
  local refused = redis.pcall("LPUSH", KEYS[1], "").err
  if not string.find(refused, "WRONGTYPE") then
    return redis.error_reply(refused)
  end
end
if place and ARGV[1] == "dead" then
  local kind = redis.call("TYPE", dead).ok
  if kind ~= "zset" and kind ~= "none" then
    return redis.error_reply("WRONGTYPE " .. dead .. " is not a sorted set")
  end
  redis.call("ZREM", place, "\0")
  redis.call("ZREMRANGEBYSCORE", dead, 1, 0)
  redis.call("ZREMRANGEBYRANK", dead, 1, 0)
  if not redis.call("ZSCORE", place, ARGV[5]) then
    return 0
  end
  redis.call("ZADD", dead, ARGV[9], ARGV[5])
  redis.call("ZREM", place, ARGV[5])
  redis.call("ZREMRANGEBYSCORE", dead, "-inf", ARGV[10])
  -- Ranks 0 to -limit leave limit - 1 jobs: Sidekiq's own off-by-one, kept on purpose. [DEAD-3]
  redis.call("ZREMRANGEBYRANK", dead, 0, -tonumber(ARGV[11]))
elseif place then
  local removed
  if redis.call("TYPE", place).ok == "list" then
    removed = redis.call("LREM", place, -1, ARGV[5])
  else
    removed = redis.call("ZREM", place, ARGV[5])
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
if KEYS[size + 5] then
  -- pcall: a result that cannot be written must not undo the removal.
  if ARGV[7] ~= "" then
    redis.pcall("SET", KEYS[size + 3], ARGV[7], "EX", ARGV[6])
  end
  redis.pcall("ZREM", KEYS[size + 4], jid)
  redis.pcall("DEL", KEYS[size + 5])
end
local how = not act and (ARGV[1] == "done" and "done" or "failed")
if end_in(1, size - 3, jid, how, ARGV[1] == "dead", ARGV[4], act) then
  for level = 1, size, 4 do
    for of = level, level + 2 do
      redis.pcall("EXPIRE", KEYS[of], 2592000)
    end
  end
  return 1
end
return place and 1 or 0
