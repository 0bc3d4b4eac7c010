-- kill.lua: move a held job to the dead set, and trim the set.
-- [REL-2] [REL-10] [REL-15] [REL-23] [REL-24] [DEAD-1] [DEAD-2] [DEAD-3] [STAT-1]
-- KEYS[1]  private hash of the process    KEYS[2]  dead set: member = payload, score = time of death;
--                                         or the set of JSON that is not an object [EXEC-4]
-- KEYS[3]  processed in all    KEYS[4]  processed on this day
-- KEYS[5]  failed in all       KEYS[6]  failed on this day
-- KEYS[7]  hash of unfinished jobs: SHA-1 of the payload -> times returned to its queue,
--          `<SHA-1>:recovered` -> how many of these were recoveries
-- KEYS[8]  sorted set: SHA-1 -> when it was returned last
-- KEYS[9]  counter of outcomes that came too late
-- ARGV[1]  seconds to keep a day's counters    ARGV[2]  field of the job in the private hash
-- ARGV[3]  payload to store    ARGV[4]  now, Unix seconds
-- ARGV[5]  score up to which the dead are forgotten    ARGV[6]  size limit
-- ARGV[7]  1 if the job was executed, else 0 (it could not be read, or is not tried again)
-- ARGV[8]  1 if this call was made before and got no reply, else 0
-- Returns  1, or 0 if the job was not held any more and nothing was stored

-- A script is not rolled back. So each key is checked first, and a job is added to its new place
-- before its entry goes. A rule that refuses a command that removes or trims is found by a call
-- without effect; after it the memory limit refuses nothing any more.
local kind = redis.call("TYPE", KEYS[2]).ok
if kind ~= "zset" and kind ~= "none" then
  return redis.error_reply("WRONGTYPE " .. KEYS[2] .. " is not a sorted set")
end
local fetched = redis.call("HGET", KEYS[1], ARGV[2])
if not fetched then
  if ARGV[8] == "0" then
    redis.pcall("INCR", KEYS[9])
  end
  return 0
end
redis.call("HDEL", KEYS[1], "")
redis.call("ZREMRANGEBYSCORE", KEYS[2], 1, 0)
redis.call("ZREMRANGEBYRANK", KEYS[2], 1, 0)
redis.call("ZADD", KEYS[2], ARGV[4], ARGV[3])
redis.call("HDEL", KEYS[1], ARGV[2])
redis.call("ZREMRANGEBYSCORE", KEYS[2], "-inf", ARGV[5])
-- Ranks 0 to -limit leave limit - 1 jobs: Sidekiq's own off-by-one, kept on purpose. [DEAD-3]
redis.call("ZREMRANGEBYRANK", KEYS[2], 0, -tonumber(ARGV[6]))
if ARGV[7] == "1" then
  redis.pcall("INCR", KEYS[3]) -- pcall: a broken counter must not undo the outcome
  redis.pcall("INCR", KEYS[4])
  redis.pcall("EXPIRE", KEYS[4], ARGV[1])
  redis.pcall("INCR", KEYS[5])
  redis.pcall("INCR", KEYS[6])
  redis.pcall("EXPIRE", KEYS[6], ARGV[1])
end
local digest = redis.sha1hex(fetched)
redis.pcall("HDEL", KEYS[7], digest, digest .. ":recovered")
redis.pcall("ZREM", KEYS[8], digest)
return 1
