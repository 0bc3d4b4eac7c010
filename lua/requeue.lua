-- requeue.lua: push a held job that gives way to the head of a queue.
-- [REL-2] [REL-15] [REL-23] [REL-24] [ITER-4] [KEY-1] [STAT-1] [STAT-2]
-- KEYS[1]  private hash of the process    KEYS[2]  queue list
-- KEYS[3]  processed in all    KEYS[4]  processed on this day
-- KEYS[5]  failed in all       KEYS[6]  failed on this day
-- KEYS[7]  hash of unfinished jobs: SHA-1 of the payload -> times returned to its queue,
--          `<SHA-1>:recovered` -> how many of these were recoveries
-- KEYS[8]  sorted set: SHA-1 -> when it was returned last
-- KEYS[9]  counter of outcomes that came too late
-- KEYS[10]  set of queue names
-- ARGV[1]  seconds to keep a day's counters    ARGV[2]  field of the job in the private hash
-- ARGV[3]  queue name    ARGV[4]  payload to push
-- ARGV[5]  1 to count an execution, else 0     ARGV[6]  1 to count a failure, else 0
-- ARGV[7]  1 if this call was made before and got no reply, else 0
-- Returns  1, or 0 if the job was not held any more and nothing was pushed

-- A script is not rolled back. So each key is checked first, and a job is added to its new place
-- before its entry goes. A rule that refuses a command that removes or trims is found by a call
-- without effect; after it the memory limit refuses nothing any more.
local kind = redis.call("TYPE", KEYS[2]).ok
if kind ~= "list" and kind ~= "none" then
  return redis.error_reply("WRONGTYPE " .. KEYS[2] .. " is not a list")
end
local fetched = redis.call("HGET", KEYS[1], ARGV[2])
if not fetched then
  if ARGV[7] == "0" then
    redis.pcall("INCR", KEYS[9])
  end
  return 0
end
redis.call("HDEL", KEYS[1], "")
redis.pcall("SADD", KEYS[10], ARGV[3]) -- pcall: a broken registry must not undo the outcome
redis.call("LPUSH", KEYS[2], ARGV[4])
redis.call("HDEL", KEYS[1], ARGV[2])
if ARGV[5] == "1" then
  redis.pcall("INCR", KEYS[3])
  redis.pcall("INCR", KEYS[4])
  redis.pcall("EXPIRE", KEYS[4], ARGV[1])
end
if ARGV[6] == "1" then
  redis.pcall("INCR", KEYS[5])
  redis.pcall("INCR", KEYS[6])
  redis.pcall("EXPIRE", KEYS[6], ARGV[1])
end
local digest = redis.sha1hex(fetched)
redis.pcall("HDEL", KEYS[7], digest, digest .. ":recovered")
redis.pcall("ZREM", KEYS[8], digest)
return 1
