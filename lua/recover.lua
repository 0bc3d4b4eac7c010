-- recover.lua: return the jobs of a process that lost its lease to their queues. [REL-3] [REL-4] [REL-7]
-- KEYS[1]  private hash of that process    KEYS[2]  its heartbeat hash: the lease
-- KEYS[3]  set of identities that own private entries
-- KEYS[4]  hash of jobs that were put back unfinished: SHA-1 of the payload -> how often
-- KEYS[5..]  queue lists
-- ARGV[1]  identity of that process    ARGV[2]  seconds to remember what was put back
-- ARGV[3..]  pairs: field of a job in the private hash, number of its queue (1 is KEYS[5]);
--            the job to run first comes last
-- Returns  how many were put back, or -1 if the process is alive after all
if redis.call("EXISTS", KEYS[2]) == 1 then
  return -1
end
local count = 0
for i = 3, #ARGV, 2 do
  local queue = KEYS[4 + tonumber(ARGV[i + 1])]
  local kind = redis.call("TYPE", queue).ok
  local payload = redis.call("HGET", KEYS[1], ARGV[i])
  -- A job whose queue is no list stays held: a script is not rolled back when a command fails.
  if payload and (kind == "list" or kind == "none") then
    redis.call("HDEL", KEYS[1], ARGV[i])
    redis.call("RPUSH", queue, payload)
    redis.pcall("HINCRBY", KEYS[4], redis.sha1hex(payload), 1)
    count = count + 1
  end
end
if count > 0 then
  redis.pcall("EXPIRE", KEYS[4], ARGV[2])
end
-- Entries that the caller did not list (fetched since it looked) are for the next round.
if redis.call("HLEN", KEYS[1]) == 0 then
  redis.call("SREM", KEYS[3], ARGV[1])
end
return count
