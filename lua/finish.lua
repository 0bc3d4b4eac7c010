-- finish.lua: end held jobs, store each in one place or none, with result, lock, next job and batch.
-- [REL-2] [REL-10] [REL-15] [REL-23] [REL-24] [RETRY-9] [DEAD-1] [DEAD-2] [DEAD-3] [ITER-4] [KEY-1] [STAT-1] [STAT-2] [X-RESULT-2] [X-RESULT-8] [X-TIME-2] [X-TIME-3] [X-TIME-4] [X-CANCEL-5] [X-UNIQ-7] [X-ADDON-4] [X-BATCH-5] [X-BATCH-8] [X-STEP-10] [X-STEP-11]
-- KEYS[1]  private hash of the process
-- KEYS[2]  the place: a queue list, or the retry set, schedule, dead set or set of JSON that is not
--          an object [EXEC-4]: member = payload, score = due time or time of death
-- KEYS[3]  processed in all    KEYS[4]  processed on this day
-- KEYS[5]  failed in all       KEYS[6]  failed on this day
-- KEYS[7]  hash of unfinished jobs: SHA-1 of the payload -> times returned to its queue,
--          `<SHA-1>:recovered` -> how many of these were recoveries
-- KEYS[8]  sorted set: SHA-1 -> when it was returned last
-- KEYS[9]  counter of outcomes that came too late
-- KEYS[10]  set of queue names
-- KEYS[11]  counter of jobs that came too late    KEYS[12]  sorted set of cancelled jobs: id -> when
-- KEYS[13..]  for each job: its result if it has one, the lock to release if it has one, the queue
--          list of the next job if it has one; the batch if it is a member of one, its open members,
--          its failed members, the queue list of its callbacks; these four of each batch around it;
--          its output
-- ARGV[1]  seconds to keep a day's counters
-- ARGV[2]  what each job counts as: `executed`, `failed` (and executed), `expired`; empty: nothing
-- ARGV[3]  1 if this call was made before and got no reply, else 0
-- ARGV[4]  queue name; empty if the place is a sorted set
-- ARGV[5]  score up to which members of the set are forgotten; empty to trim nothing
-- ARGV[6]  size limit of the set
-- ARGV[7]  words of each job: 3, 7 or 14
-- ARGV[8..]  field of the job in the private hash, score (empty, without a queue name: it is stored
--            nowhere), payload to store; and with 7 words: id to remove from the cancelled jobs
--            (empty: none), seconds to keep the result, result (empty: none), id of the job
--            that must have the lock (empty: none is released); and with 14 words: queue name
--            of the next job (empty: none is pushed), its payload, id of the job in its batch
--            (empty: it is not in one), how it ended (`done`, `dead`, `dropped`), number of batches,
--            with those around it, JSON text of the time now; how it ended, for those who read its
--            output, if there is one (empty: it is not looked for)
-- Returns  the fields that were not held any more; nothing was stored for those

-- A script is not rolled back. So each key is checked first, and a job is added to its new place
-- before its entry goes. A rule that refuses a command that removes or trims is found by a call
-- without effect; after it the memory limit refuses nothing any more.
local KEYS, ARGV = KEYS, ARGV -- a local variable is faster
local wanted = ARGV[4] == "" and "zset" or "list"
local kind = redis.call("TYPE", KEYS[2]).ok
if kind ~= wanted and kind ~= "none" then
  return redis.error_reply("WRONGTYPE " .. KEYS[2] .. " is not a " .. wanted)
end
local words = tonumber(ARGV[7])
local key = 12
-- Word of a job -> queue list of its next job; its batch; its output.
local nexts, batches, outputs = {}, {}, {}
if words == 14 then
  for i = 8, #ARGV, words do
    key = key + (ARGV[i + 5] ~= "" and 1 or 0) + (ARGV[i + 6] ~= "" and 1 or 0)
    local lists = {}
    if ARGV[i + 7] ~= "" then
      nexts[i] = key + 1
      key = key + 1
      lists[1] = key
    end
    if ARGV[i + 9] ~= "" then
      batches[i] = key + 1
      for _ = 1, ARGV[i + 11] do
        key = key + 4
        lists[#lists + 1] = key
      end
    end
    if ARGV[i + 13] ~= "" then
      outputs[i] = key + 1
      key = key + 1
    end
    for _, list in ipairs(lists) do
      local of = redis.call("TYPE", KEYS[list]).ok
      if of ~= "list" and of ~= "none" then
        return redis.error_reply("WRONGTYPE " .. KEYS[list] .. " is not a list")
      end
    end
  end
  key = 12
end
redis.call("HDEL", KEYS[1], "")
if ARGV[5] ~= "" then
  redis.call("ZREMRANGEBYSCORE", KEYS[2], 1, 0)
  redis.call("ZREMRANGEBYRANK", KEYS[2], 1, 0)
end
-- Ends a member in its batch, and a batch that ends with it in the outer batch, whose keys follow.
-- The outer batch is changed first: after a command that is refused the same end still counts.
-- `how` is `done` or `failed`, or nothing if only a death is told. Returns false if nothing changed.
-- pcall: a batch that is gone or broken must not undo the outcome.
local function end_in(batch, last, member, how, died, at)
  local open, failed = KEYS[batch + 1], KEYS[batch + 2]
  local was_open = redis.pcall("SISMEMBER", open, member) == 1
  local had_failed = redis.pcall("SISMEMBER", failed, member) == 1
  local before = redis.pcall("HGET", KEYS[batch], "state")
  if type(before) ~= "string" or not (was_open or had_failed) then
    return false
  end
  local state = before
  for outer = batch + 4, last, 4 do
    if redis.pcall("HGET", KEYS[outer], "state") == "cancelled" then
      state = "cancelled"
    end
  end
  local left = redis.call("SCARD", open) - (how and was_open and 1 or 0)
  local lost = redis.call("SCARD", failed) - (had_failed and 1 or 0)
  local completes = how and left == 0 and state ~= "open"
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
      redis.pcall("SADD", KEYS[10], redis.call("HGET", KEYS[batch], "queue"))
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
local lost = {}
local any_returned = redis.call("EXISTS", KEYS[7]) == 1
for i = 8, #ARGV, words do
  local fetched = redis.call("HGET", KEYS[1], ARGV[i])
  local result, lock = 0, 0 -- their keys; 0: none
  if words > 3 and ARGV[i + 5] ~= "" then
    key = key + 1
    result = key
  end
  if words > 3 and ARGV[i + 6] ~= "" then
    key = key + 1
    lock = key
  end
  key = batches[i] and batches[i] + 4 * ARGV[i + 11] - 1 or nexts[i] or key
  key = outputs[i] or key
  if not fetched then
    lost[#lost + 1] = ARGV[i]
  else
    if wanted == "list" then
      redis.pcall("SADD", KEYS[10], ARGV[4]) -- pcall: a broken registry must not undo the outcome
      redis.call("LPUSH", KEYS[2], ARGV[i + 2])
    elseif ARGV[i + 1] ~= "" then
      redis.call("ZADD", KEYS[2], ARGV[i + 1], ARGV[i + 2])
    end
    if nexts[i] then
      redis.pcall("SADD", KEYS[10], ARGV[i + 7])
      redis.call("LPUSH", KEYS[nexts[i]], ARGV[i + 8])
    end
    if batches[i] then
      local batch, how = batches[i], ARGV[i + 10]
      local last, died = batch + 4 * ARGV[i + 11] - 4, how == "dead"
      how = how == "done" and how or "failed"
      if end_in(batch, last, ARGV[i + 9], how, died, ARGV[i + 12]) then
        for level = batch, last, 4 do
          for of = level, level + 2 do
            redis.pcall("EXPIRE", KEYS[of], 2592000)
          end
        end
      end
    end
    redis.call("HDEL", KEYS[1], ARGV[i])
    -- pcall: a result, lock or counter that cannot be written must not undo the outcome.
    if words > 3 and ARGV[i + 3] ~= "" then
      redis.pcall("ZREM", KEYS[12], ARGV[i + 3])
    end
    if result > 0 then
      redis.pcall("SET", KEYS[result], ARGV[i + 5], "EX", ARGV[i + 4])
    end
    if lock > 0 then
      local holder = redis.pcall("GET", KEYS[lock])
      if holder == ARGV[i + 6] then
        redis.pcall("UNLINK", KEYS[lock])
      elseif type(holder) == "table" then -- a hash, as sidekiq-unique-jobs has
        redis.pcall("HDEL", KEYS[lock], ARGV[i + 6])
      end
    end
    local output = KEYS[outputs[i] or 0]
    if output and redis.pcall("EXISTS", output) == 1 then
      local last = redis.pcall("XREVRANGE", output, "+", "-", "COUNT", 1)[1] or { "0-0" }
      local at, number = string.match(last[1], "(%d+)-(%d+)")
      redis.pcall("XADD", output, at .. "-" .. number + 1, "end", ARGV[i + 13])
    end
    if any_returned then
      local digest = redis.sha1hex(fetched)
      redis.pcall("HDEL", KEYS[7], digest, digest .. ":recovered")
      redis.pcall("ZREM", KEYS[8], digest)
    end
  end
end
local count = (#ARGV - 7) / words - #lost
if count > 0 then
  if ARGV[5] ~= "" then
    redis.call("ZREMRANGEBYSCORE", KEYS[2], "-inf", ARGV[5])
    -- Ranks 0 to -limit leave limit - 1 jobs: Sidekiq's own off-by-one, kept on purpose. [DEAD-3]
    redis.call("ZREMRANGEBYRANK", KEYS[2], 0, -tonumber(ARGV[6]))
  end
  if ARGV[2] == "executed" or ARGV[2] == "failed" then
    redis.pcall("INCRBY", KEYS[3], count)
    redis.pcall("INCRBY", KEYS[4], count)
    redis.pcall("EXPIRE", KEYS[4], ARGV[1])
  end
  if ARGV[2] == "failed" then
    redis.pcall("INCRBY", KEYS[5], count)
    redis.pcall("INCRBY", KEYS[6], count)
    redis.pcall("EXPIRE", KEYS[6], ARGV[1])
  elseif ARGV[2] == "expired" then
    redis.pcall("INCRBY", KEYS[11], count)
  end
end
if #lost > 0 and ARGV[3] == "0" then
  redis.pcall("INCRBY", KEYS[9], #lost)
end
return lost
