-- retry.lua: a held job failed and goes to the retry set.
-- [REL-2] [REL-7] [REL-12] [RETRY-9] [STAT-1] [STAT-2]
-- KEYS[1]  private hash of the process    KEYS[2]  retry set: member = payload, score = due time
-- KEYS[3]  processed in all    KEYS[4]  processed on this day
-- KEYS[5]  failed in all       KEYS[6]  failed on this day
-- KEYS[7]  hash of unfinished jobs: SHA-1 of the payload -> times returned to its queue,
--          `<SHA-1>:recovered` -> how many of these were recoveries
-- KEYS[8]  sorted set: SHA-1 -> when it was returned last
-- KEYS[9]  counter of outcomes that came too late
-- ARGV[1]  seconds to keep a day's counters    ARGV[2]  field of the job in the private hash
-- ARGV[3]  when to try again, Unix seconds     ARGV[4]  payload to store
-- ARGV[5]  1 if this call was made before and got no reply, else 0
-- Returns  1, or 0 if the job was not held any more and nothing was stored

-- Nothing may fail after the entry is gone: a script is not rolled back. Out of memory cannot, once
-- something was written; a key of another type can.
local kind = redis.call("TYPE", KEYS[2]).ok
if kind ~= "zset" and kind ~= "none" then
  return redis.error_reply("WRONGTYPE " .. KEYS[2] .. " is no sorted set")
end
local fetched = redis.call("HGET", KEYS[1], ARGV[2])
if not fetched then
  if ARGV[5] == "0" then
    redis.pcall("INCR", KEYS[9])
  end
  return 0
end
redis.call("HDEL", KEYS[1], ARGV[2])
redis.call("ZADD", KEYS[2], ARGV[3], ARGV[4])
redis.pcall("INCR", KEYS[3]) -- pcall: a broken counter must not undo the outcome
redis.pcall("INCR", KEYS[4])
redis.pcall("EXPIRE", KEYS[4], ARGV[1])
redis.pcall("INCR", KEYS[5])
redis.pcall("INCR", KEYS[6])
redis.pcall("EXPIRE", KEYS[6], ARGV[1])
local digest = redis.sha1hex(fetched)
redis.pcall("HDEL", KEYS[7], digest, digest .. ":recovered")
redis.pcall("ZREM", KEYS[8], digest)
return 1
