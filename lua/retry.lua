-- retry.lua: move held jobs that failed to the retry set, each one completely or not at all.
-- [REL-2] [REL-15] [REL-23] [REL-24] [RETRY-9] [STAT-1] [STAT-2]
-- KEYS[1]  private hash of the process    KEYS[2]  retry set: member = payload, score = due time
-- KEYS[3]  processed in all    KEYS[4]  processed on this day
-- KEYS[5]  failed in all       KEYS[6]  failed on this day
-- KEYS[7]  hash of unfinished jobs: SHA-1 of the payload -> times returned to its queue,
--          `<SHA-1>:recovered` -> how many of these were recoveries
-- KEYS[8]  sorted set: SHA-1 -> when it was returned last
-- KEYS[9]  counter of outcomes that came too late
-- ARGV[1]  seconds to keep a day's counters
-- ARGV[2]  1 if this call was made before and got no reply, else 0
-- ARGV[3..]  threes: field of the job in the private hash, when to try again in Unix seconds,
--            payload to store
-- Returns  the fields that were not held any more; nothing was stored for those

-- A script is not rolled back. So each key is checked first, and a job is added to its new place
-- before its entry goes. A rule that refuses a command that removes or trims is found by a call
-- without effect; after it the memory limit refuses nothing any more.
local kind = redis.call("TYPE", KEYS[2]).ok
if kind ~= "zset" and kind ~= "none" then
  return redis.error_reply("WRONGTYPE " .. KEYS[2] .. " is not a sorted set")
end
redis.call("HDEL", KEYS[1], "")
local lost = {}
local any_returned = redis.call("EXISTS", KEYS[7]) == 1
for i = 3, #ARGV, 3 do
  local fetched = redis.call("HGET", KEYS[1], ARGV[i])
  if not fetched then
    lost[#lost + 1] = ARGV[i]
  else
    redis.call("ZADD", KEYS[2], ARGV[i + 1], ARGV[i + 2])
    redis.call("HDEL", KEYS[1], ARGV[i])
    if any_returned then
      local digest = redis.sha1hex(fetched)
      redis.pcall("HDEL", KEYS[7], digest, digest .. ":recovered")
      redis.pcall("ZREM", KEYS[8], digest)
    end
  end
end
local count = (#ARGV - 2) / 3 - #lost
if count > 0 then
  redis.pcall("INCRBY", KEYS[3], count) -- pcall: a broken counter must not undo the outcomes
  redis.pcall("INCRBY", KEYS[4], count)
  redis.pcall("EXPIRE", KEYS[4], ARGV[1])
  redis.pcall("INCRBY", KEYS[5], count)
  redis.pcall("INCRBY", KEYS[6], count)
  redis.pcall("EXPIRE", KEYS[6], ARGV[1])
end
if #lost > 0 and ARGV[2] == "0" then
  redis.pcall("INCRBY", KEYS[9], #lost)
end
return lost
