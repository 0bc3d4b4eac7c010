-- put_back.lua: return held jobs to their queues, to run next. [REL-2] [REL-7] [FETCH-6] [SIG-5]
-- KEYS[1]  private hash of the process
-- KEYS[2]  hash of jobs that were put back unfinished: SHA-1 of the payload -> how often
-- KEYS[3..]  queue lists
-- ARGV[1]  seconds to remember that they ran unfinished; 0: they never started
-- ARGV[2..]  pairs: field of a job in the private hash, number of its queue (1 is KEYS[3]);
--            the job to run first comes last
-- Returns  how many were still held and put back
local count = 0
for i = 2, #ARGV, 2 do
  local queue = KEYS[2 + tonumber(ARGV[i + 1])]
  local kind = redis.call("TYPE", queue).ok
  local payload = redis.call("HGET", KEYS[1], ARGV[i])
  -- A job whose queue is no list stays held: a script is not rolled back when a command fails.
  if payload and (kind == "list" or kind == "none") then
    redis.call("HDEL", KEYS[1], ARGV[i])
    redis.call("RPUSH", queue, payload)
    if ARGV[1] ~= "0" then
      redis.pcall("HINCRBY", KEYS[2], redis.sha1hex(payload), 1)
      redis.pcall("EXPIRE", KEYS[2], ARGV[1])
    end
    count = count + 1
  end
end
return count
