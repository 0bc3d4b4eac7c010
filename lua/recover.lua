-- recover.lua: return jobs of a process that lost its lease to their queues.
-- [REL-4] [REL-7] [REL-11] [REL-12] [REL-20] [REL-22]
-- KEYS[1]  private hash of that process    KEYS[2]  its heartbeat hash: the lease
-- KEYS[3]  set of identities that own private entries
-- KEYS[4]  hash of unfinished jobs: SHA-1 of the payload -> times returned to its queue,
--          `<SHA-1>:recovered` -> how many of these were recoveries
-- KEYS[5]  sorted set: SHA-1 -> when it was returned last
-- KEYS[6]  counter of recovered jobs
-- KEYS[7]  set of queue names
-- KEYS[8..]  queue lists
-- ARGV[1]  identity of that process    ARGV[2]  seconds to remember what was put back
-- ARGV[3]  now, Unix seconds
-- ARGV[4..]  pairs: field of a job in the private hash, number of its queue (1 is KEYS[8]);
--            the job to run first comes last
-- Returns  how many were put back, or -1 if the process is alive after all
if redis.call("EXISTS", KEYS[2]) == 1 then
  return -1
end
-- A script is not rolled back. So a job is added to its queue before its entry goes, and a rule that
-- refuses a command that removes is found by a call without effect.
redis.call("HDEL", KEYS[1], "")
redis.call("SREM", KEYS[3], "")
local held = redis.call("HLEN", KEYS[1])
local count = 0
for i = 4, #ARGV, 2 do
  local queue = KEYS[7 + tonumber(ARGV[i + 1])]
  local kind = redis.call("TYPE", queue).ok
  local payload = redis.call("HGET", KEYS[1], ARGV[i])
  -- A job whose queue is not a list stays held.
  if payload and (kind == "list" or kind == "none") then
    redis.call("RPUSH", queue, payload)
    redis.call("HDEL", KEYS[1], ARGV[i])
    redis.pcall("SADD", KEYS[7], string.match(ARGV[i], ":(.*)"))
    local digest = redis.sha1hex(payload)
    redis.pcall("HINCRBY", KEYS[4], digest, 1)
    redis.pcall("HINCRBY", KEYS[4], digest .. ":recovered", 1)
    redis.pcall("ZADD", KEYS[5], ARGV[3], digest)
    count = count + 1
  end
end
if count > 0 then
  redis.pcall("EXPIRE", KEYS[4], ARGV[2])
  redis.pcall("EXPIRE", KEYS[5], ARGV[2])
  redis.pcall("INCRBY", KEYS[6], count)
end
-- Entries that the caller did not list (fetched since it looked) are for the next round.
if held == count then
  redis.call("SREM", KEYS[3], ARGV[1])
end
return count
