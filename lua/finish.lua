-- finish.lua: end held jobs, store each in one place or none, with result, lock, next job and batch.
-- [REL-2] [REL-10] [REL-15] [REL-23] [REL-24] [RETRY-9] [DEAD-1] [DEAD-2] [DEAD-3] [ITER-4] [KEY-1] [STAT-1] [STAT-2] [X-RESULT-2] [X-RESULT-8] [X-TIME-2] [X-TIME-3] [X-TIME-4] [X-CANCEL-5] [X-UNIQ-7] [X-ADDON-4] [X-BATCH-5] [X-BATCH-8]
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
--          its failed members, the queue list of its callbacks
-- ARGV[1]  seconds to keep a day's counters
-- ARGV[2]  what each job counts as: `executed`, `failed` (and executed), `expired`; empty: nothing
-- ARGV[3]  1 if this call was made before and got no reply, else 0
-- ARGV[4]  queue name; empty if the place is a sorted set
-- ARGV[5]  score up to which members of the set are forgotten; empty to trim nothing
-- ARGV[6]  size limit of the set
-- ARGV[7]  words of each job: 3, 7 or 13
-- ARGV[8..]  field of the job in the private hash, score (empty, without a queue name: it is stored
--            nowhere), payload to store; and with 7 words: id to remove from the cancelled jobs
--            (empty: none), seconds to keep the result, result (empty: none), id of the job
--            that must have the lock (empty: none is released); and with 13 words: queue name
--            of the next job (empty: none is pushed), its payload, id of the job in its batch
--            (empty: it is not in one), how it ended (`done`, `dead`, `dropped`), queue name of the
--            callbacks, JSON text of the time now
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
local nexts, batches = {}, {} -- word of a job -> queue list of its next job; its batch
if words == 13 then
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
      key = key + 4
      lists[#lists + 1] = key
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
  key = batches[i] and batches[i] + 3 or nexts[i] or key
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
      -- pcall: a batch that is gone or broken must not undo the outcome.
      local batch, jid, how = batches[i], ARGV[i + 9], ARGV[i + 10]
      local open, failed = batch + 1, batch + 2
      local was_open = redis.pcall("SISMEMBER", KEYS[open], jid) == 1
      local had_failed = redis.pcall("SISMEMBER", KEYS[failed], jid) == 1
      local state = redis.pcall("HGET", KEYS[batch], "state")
      if type(state) == "string" and (was_open or had_failed) then
        local left = redis.call("SCARD", KEYS[open]) - (was_open and 1 or 0)
        local lost_ones = redis.call("SCARD", KEYS[failed]) - (had_failed and 1 or 0)
        local due = how == "dead" and { "on_death" } or {}
        local completes = left == 0 and state ~= "open"
        if completes then
          due[#due + 1] = "on_complete"
        end
        if completes and lost_ones == 0 and how == "done" then
          due[#due + 1] = "on_success"
        end
        for _, name in ipairs(due) do
          local callback = redis.call("HGET", KEYS[batch], name)
          if callback then
            redis.pcall("SADD", KEYS[10], ARGV[i + 11])
            local at = ',"enqueued_at":' .. ARGV[i + 12] .. "}"
            redis.call("LPUSH", KEYS[batch + 3], string.sub(callback, 1, -2) .. at)
            redis.call("HDEL", KEYS[batch], name)
          end
        end
        redis.call("SREM", KEYS[open], jid)
        if how == "done" then
          redis.call("SREM", KEYS[failed], jid)
        else
          redis.call("SADD", KEYS[failed], jid)
        end
        if completes and state == "closed" then
          redis.pcall("HSET", KEYS[batch], "state", "complete")
        end
        redis.pcall("EXPIRE", KEYS[batch], 2592000)
        redis.pcall("EXPIRE", KEYS[open], 2592000)
        redis.pcall("EXPIRE", KEYS[failed], 2592000)
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
