-- keep.lua: end held jobs, store them in a sorted set or nowhere, and keep their results.
-- [X-RESULT-2] [X-RESULT-8] [X-TIME-2] [X-TIME-3] [X-TIME-4] [X-CANCEL-5] [REL-2] [REL-15] [REL-23] [REL-24] [RETRY-9] [DEAD-1] [STAT-1]
-- KEYS[1]  private hash of the process
-- KEYS[2]  retry set, schedule or dead set: member = payload, score = due time or time of death
-- KEYS[3]  processed in all    KEYS[4]  processed on this day
-- KEYS[5]  failed in all       KEYS[6]  failed on this day
-- KEYS[7]  hash of unfinished jobs: SHA-1 of the payload -> times returned to its queue,
--          `<SHA-1>:recovered` -> how many of these were recoveries
-- KEYS[8]  sorted set: SHA-1 -> when it was returned last
-- KEYS[9]  counter of outcomes that came too late
-- KEYS[10]  sorted set of cancelled jobs: id -> when    KEYS[11]  counter of jobs that came too late
-- KEYS[12..]  results, one for each job
-- ARGV[1]  seconds to keep a day's counters
-- ARGV[2]  1 to count executions, else 0    ARGV[3]  1 to count failures, else 0
-- ARGV[4]  1 if this call was made before and got no reply, else 0
-- ARGV[5]  score up to which members of the set are forgotten; empty to trim nothing
-- ARGV[6]  size limit of the set    ARGV[7]  1 to count jobs that came too late, else 0
-- ARGV[8..]  sixes: field of the job in the private hash, score, payload to store (empty: it is
--            stored nowhere), seconds to keep the result, result (empty: none is kept),
--            id to remove from the cancelled jobs (empty: none)
-- Returns  the fields that were not held any more; nothing was stored for those

-- A script is not rolled back. So each key is checked first, and a job is added to its new place
-- before its entry goes. A rule that refuses a command that removes or trims is found by a call
-- without effect; after it the memory limit refuses nothing any more.
local kind = redis.call("TYPE", KEYS[2]).ok
if kind ~= "zset" and kind ~= "none" then
  return redis.error_reply("WRONGTYPE " .. KEYS[2] .. " is not a sorted set")
end
redis.call("HDEL", KEYS[1], "")
if ARGV[5] ~= "" then
  redis.call("ZREMRANGEBYSCORE", KEYS[2], 1, 0)
  redis.call("ZREMRANGEBYRANK", KEYS[2], 1, 0)
end
local lost = {}
local any_returned = redis.call("EXISTS", KEYS[7]) == 1
for i = 8, #ARGV, 6 do
  local fetched = redis.call("HGET", KEYS[1], ARGV[i])
  if not fetched then
    lost[#lost + 1] = ARGV[i]
  else
    if ARGV[i + 2] ~= "" then
      redis.call("ZADD", KEYS[2], ARGV[i + 1], ARGV[i + 2])
    end
    redis.call("HDEL", KEYS[1], ARGV[i])
    -- pcall: a result or counter that cannot be written must not undo the outcome.
    if ARGV[i + 4] ~= "" then
      redis.pcall("SET", KEYS[11 + (i - 2) / 6], ARGV[i + 4], "EX", ARGV[i + 3])
    end
    if ARGV[i + 5] ~= "" then
      redis.pcall("ZREM", KEYS[10], ARGV[i + 5])
    end
    if any_returned then
      local digest = redis.sha1hex(fetched)
      redis.pcall("HDEL", KEYS[7], digest, digest .. ":recovered")
      redis.pcall("ZREM", KEYS[8], digest)
    end
  end
end
local count = (#ARGV - 7) / 6 - #lost
if ARGV[5] ~= "" and count > 0 then
  redis.call("ZREMRANGEBYSCORE", KEYS[2], "-inf", ARGV[5])
  -- Ranks 0 to -limit leave limit - 1 jobs: Sidekiq's own off-by-one, kept on purpose. [DEAD-3]
  redis.call("ZREMRANGEBYRANK", KEYS[2], 0, -tonumber(ARGV[6]))
end
if ARGV[2] == "1" and count > 0 then
  redis.pcall("INCRBY", KEYS[3], count)
  redis.pcall("INCRBY", KEYS[4], count)
  redis.pcall("EXPIRE", KEYS[4], ARGV[1])
end
if ARGV[3] == "1" and count > 0 then
  redis.pcall("INCRBY", KEYS[5], count)
  redis.pcall("INCRBY", KEYS[6], count)
  redis.pcall("EXPIRE", KEYS[6], ARGV[1])
end
if ARGV[7] == "1" and count > 0 then
  redis.pcall("INCRBY", KEYS[11], count)
end
if #lost > 0 and ARGV[4] == "0" then
  redis.pcall("INCRBY", KEYS[9], #lost)
end
return lost
