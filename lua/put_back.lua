-- put_back.lua: return held jobs to their queues, to run next. [REL-2] [FETCH-6] [SIG-5]
-- KEYS[1]  private hash of the process    KEYS[2..]  queue lists
-- ARGV[1..]  pairs: field of a job in the private hash, number of its queue (1 is KEYS[2]);
--            the job to run first comes last
-- Returns  how many were still held and put back
local count = 0
for i = 1, #ARGV, 2 do
  local queue = KEYS[1 + tonumber(ARGV[i + 1])]
  local kind = redis.call("TYPE", queue).ok
  local payload = redis.call("HGET", KEYS[1], ARGV[i])
  -- A job whose queue is no list stays held: a script is not rolled back when a command fails.
  if payload and (kind == "list" or kind == "none") then
    redis.call("HDEL", KEYS[1], ARGV[i])
    redis.call("RPUSH", queue, payload)
    count = count + 1
  end
end
return count
