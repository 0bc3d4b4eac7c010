-- recover.lua: return the jobs of a process that lost its lease to their queues. [REL-3] [REL-4]
-- KEYS[1]  private hash of that process    KEYS[2]  its heartbeat hash: the lease
-- KEYS[3]  set of identities that own private entries    KEYS[4..]  queue lists
-- ARGV[1]  identity of that process
-- ARGV[2..]  pairs: field of a job in the private hash, number of its queue (1 is KEYS[4]);
--            the job to run first comes last
-- Returns  how many were put back, or -1 if the process is alive after all
if redis.call("EXISTS", KEYS[2]) == 1 then
  return -1
end
local count = 0
for i = 2, #ARGV, 2 do
  local queue = KEYS[3 + tonumber(ARGV[i + 1])]
  local kind = redis.call("TYPE", queue).ok
  local payload = redis.call("HGET", KEYS[1], ARGV[i])
  -- A job whose queue is no list stays held: a script is not rolled back when a command fails.
  if payload and (kind == "list" or kind == "none") then
    redis.call("HDEL", KEYS[1], ARGV[i])
    redis.call("RPUSH", queue, payload)
    count = count + 1
  end
end
-- Entries that the caller did not list (fetched since it looked) are for the next round.
if redis.call("HLEN", KEYS[1]) == 0 then
  redis.call("SREM", KEYS[3], ARGV[1])
end
return count
