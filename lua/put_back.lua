-- put_back.lua: return held jobs to their queues, to run next.
-- [REL-2] [REL-7] [REL-15] [REL-22] [REL-23] [FETCH-6] [SIG-5]
-- KEYS[1]  private hash of the process
-- KEYS[2]  hash of unfinished jobs: SHA-1 of the payload -> times returned to its queue
-- KEYS[3]  sorted set: SHA-1 -> when it was returned last
-- KEYS[4]  counter of outcomes that came too late
-- KEYS[5]  set of queue names
-- KEYS[6..]  queue lists
-- ARGV[1]  seconds to remember that they ran unfinished; 0: they never started
-- ARGV[2]  now, Unix seconds
-- ARGV[3]  1 if this call was made before and got no reply, else 0
-- ARGV[4..]  pairs: field of a job in the private hash, number of its queue (1 is KEYS[6]);
--            the job to run first comes last
-- Returns  how many were still held and put back
-- A script is not rolled back. So a job is added to its queue before its entry goes, and a rule that
-- refuses a command that removes is found by a call without effect.
redis.call("HDEL", KEYS[1], "")
local started = ARGV[1] ~= "0"
local count = 0
for i = 4, #ARGV, 2 do
  local queue = KEYS[5 + tonumber(ARGV[i + 1])]
  local kind = redis.call("TYPE", queue).ok
  local payload = redis.call("HGET", KEYS[1], ARGV[i])
  -- A job whose queue is not a list stays held.
  if payload and (kind == "list" or kind == "none") then
    redis.call("RPUSH", queue, payload)
    redis.call("HDEL", KEYS[1], ARGV[i])
    redis.pcall("SADD", KEYS[5], string.match(ARGV[i], ":(.*)"))
    if started then
      local digest = redis.sha1hex(payload)
      redis.pcall("HINCRBY", KEYS[2], digest, 1)
      redis.pcall("ZADD", KEYS[3], ARGV[2], digest)
    end
    count = count + 1
  elseif started and not payload and ARGV[3] == "0" then
    redis.pcall("INCRBY", KEYS[4], 1)
  end
end
if started and count > 0 then
  redis.pcall("EXPIRE", KEYS[2], ARGV[1])
  redis.pcall("EXPIRE", KEYS[3], ARGV[1])
end
return count
