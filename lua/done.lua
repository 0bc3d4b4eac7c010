-- done.lua: acknowledge and count finished jobs that are not stored anywhere else.
-- [REL-2] [REL-15] [REL-23] [REL-24] [STAT-1] [STAT-2]
-- KEYS[1]  private hash of the process
-- KEYS[2]  processed in all    KEYS[3]  processed on this day
-- KEYS[4]  failed in all       KEYS[5]  failed on this day
-- KEYS[6]  hash of unfinished jobs: SHA-1 of the payload -> times returned to its queue,
--          `<SHA-1>:recovered` -> how many of these were recoveries
-- KEYS[7]  sorted set: SHA-1 -> when it was returned last
-- KEYS[8]  counter of outcomes that came too late
-- ARGV[1]  seconds to keep a day's counters    ARGV[2]  1 if the jobs failed, else 0
-- ARGV[3]  1 if this call was made before and got no reply, else 0
-- ARGV[4..]  fields of the jobs in the private hash
-- Returns  the fields that were not held any more; those jobs are not counted
local lost = {}
local any_returned = redis.call("EXISTS", KEYS[6]) == 1
for i = 4, #ARGV do
  local payload = any_returned and redis.call("HGET", KEYS[1], ARGV[i])
  if redis.call("HDEL", KEYS[1], ARGV[i]) == 0 then
    lost[#lost + 1] = ARGV[i]
  elseif payload then
    local digest = redis.sha1hex(payload)
    redis.pcall("HDEL", KEYS[6], digest, digest .. ":recovered")
    redis.pcall("ZREM", KEYS[7], digest)
  end
end
local count = #ARGV - 3 - #lost
if count > 0 then
  -- pcall: a broken counter must not make a finished job look unfinished.
  redis.pcall("INCRBY", KEYS[2], count)
  redis.pcall("INCRBY", KEYS[3], count)
  redis.pcall("EXPIRE", KEYS[3], ARGV[1])
  if ARGV[2] == "1" then
    redis.pcall("INCRBY", KEYS[4], count)
    redis.pcall("INCRBY", KEYS[5], count)
    redis.pcall("EXPIRE", KEYS[5], ARGV[1])
  end
end
if #lost > 0 and ARGV[3] == "0" then
  redis.pcall("INCRBY", KEYS[8], #lost)
end
return lost
