-- finish.lua: end held jobs that do not simply succeed; store them in one place or in none.
-- [REL-2] [REL-10] [REL-15] [REL-23] [REL-24] [RETRY-9] [DEAD-1] [DEAD-2] [DEAD-3] [ITER-4] [KEY-1] [STAT-1] [STAT-2] [X-RESULT-2] [X-RESULT-8] [X-TIME-2] [X-TIME-3] [X-TIME-4] [X-CANCEL-5]
-- KEYS[1]  private hash of the process
-- KEYS[2]  the place: retry set, schedule, dead set or set of JSON that is not an object (member =
--          payload, score = due time or time of death), or a queue list
-- KEYS[3]  processed in all    KEYS[4]  processed on this day
-- KEYS[5]  failed in all       KEYS[6]  failed on this day
-- KEYS[7]  hash of unfinished jobs: SHA-1 of the payload -> times returned to its queue,
--          `<SHA-1>:recovered` -> how many of these were recoveries
-- KEYS[8]  sorted set: SHA-1 -> when it was returned last
-- KEYS[9]  counter of outcomes that came too late
-- KEYS[10]  sorted set of cancelled jobs: id -> when    KEYS[11]  counter of jobs that came too late
-- KEYS[12]  set of queue names
-- KEYS[13..]  results
-- ARGV[1]  seconds to keep a day's counters
-- ARGV[2]  1 to count executions, else 0    ARGV[3]  1 to count failures, else 0
-- ARGV[4]  1 to count jobs that came too late, else 0
-- ARGV[5]  1 if this call was made before and got no reply, else 0
-- ARGV[6]  queue name if the place is a queue, else empty
-- ARGV[7]  score up to which members of the set are forgotten; empty to trim nothing
-- ARGV[8]  size limit of the set
-- ARGV[9..]  sevens: field of the job in the private hash, score, payload to store (empty: it is
--            stored nowhere), id to remove from the cancelled jobs (empty: none), number of its
--            result (1 is KEYS[13], 0: none), seconds to keep the result, result
-- Returns  the fields that were not held any more; nothing was stored for those

-- A script is not rolled back. So each key is checked first, and a job is added to its new place
-- before its entry goes. A rule that refuses a command that removes or trims is found by a call
-- without effect; after it the memory limit refuses nothing any more.
local wanted = ARGV[6] == "" and "zset" or "list"
local kind = redis.call("TYPE", KEYS[2]).ok
if kind ~= wanted and kind ~= "none" then
  return redis.error_reply("WRONGTYPE " .. KEYS[2] .. " is not a " .. wanted)
end
redis.call("HDEL", KEYS[1], "")
if ARGV[7] ~= "" then
  redis.call("ZREMRANGEBYSCORE", KEYS[2], 1, 0)
  redis.call("ZREMRANGEBYRANK", KEYS[2], 1, 0)
end
local lost = {}
local any_returned = redis.call("EXISTS", KEYS[7]) == 1
for i = 9, #ARGV, 7 do
  local fetched = redis.call("HGET", KEYS[1], ARGV[i])
  if not fetched then
    lost[#lost + 1] = ARGV[i]
  else
    if wanted == "list" then
      redis.pcall("SADD", KEYS[12], ARGV[6]) -- pcall: a broken registry must not undo the outcome
      redis.call("LPUSH", KEYS[2], ARGV[i + 2])
    elseif ARGV[i + 2] ~= "" then
      redis.call("ZADD", KEYS[2], ARGV[i + 1], ARGV[i + 2])
    end
    redis.call("HDEL", KEYS[1], ARGV[i])
    -- pcall: a result or counter that cannot be written must not undo the outcome.
    if ARGV[i + 3] ~= "" then
      redis.pcall("ZREM", KEYS[10], ARGV[i + 3])
    end
    if ARGV[i + 4] ~= "0" then
      redis.pcall("SET", KEYS[12 + tonumber(ARGV[i + 4])], ARGV[i + 6], "EX", ARGV[i + 5])
    end
    if any_returned then
      local digest = redis.sha1hex(fetched)
      redis.pcall("HDEL", KEYS[7], digest, digest .. ":recovered")
      redis.pcall("ZREM", KEYS[8], digest)
    end
  end
end
local count = (#ARGV - 8) / 7 - #lost
if count > 0 then
  if ARGV[7] ~= "" then
    redis.call("ZREMRANGEBYSCORE", KEYS[2], "-inf", ARGV[7])
    -- Ranks 0 to -limit leave limit - 1 jobs: Sidekiq's own off-by-one, kept on purpose. [DEAD-3]
    redis.call("ZREMRANGEBYRANK", KEYS[2], 0, -tonumber(ARGV[8]))
  end
  if ARGV[2] == "1" then
    redis.pcall("INCRBY", KEYS[3], count)
    redis.pcall("INCRBY", KEYS[4], count)
    redis.pcall("EXPIRE", KEYS[4], ARGV[1])
  end
  if ARGV[3] == "1" then
    redis.pcall("INCRBY", KEYS[5], count)
    redis.pcall("INCRBY", KEYS[6], count)
    redis.pcall("EXPIRE", KEYS[6], ARGV[1])
  end
  if ARGV[4] == "1" then
    redis.pcall("INCRBY", KEYS[11], count)
  end
end
if #lost > 0 and ARGV[5] == "0" then
  redis.pcall("INCRBY", KEYS[9], #lost)
end
return lost
