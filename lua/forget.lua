-- forget.lua: delete the counts of returned jobs, long after their last return. [REL-25]
-- KEYS[1]  hash of unfinished jobs: SHA-1 of the payload -> times returned to its queue,
--          `<SHA-1>:recovered` -> how many of these were recoveries
-- KEYS[2]  sorted set: SHA-1 -> when it was returned last
-- ARGV[1]  time up to which they are forgotten    ARGV[2]  how many at most
-- Returns  how many were forgotten
-- pcall: a broken counter must not stop a worker.
local old = redis.pcall("ZRANGE", KEYS[2], "-inf", ARGV[1], "BYSCORE", "LIMIT", 0, ARGV[2])
for _, digest in ipairs(old) do
  redis.pcall("HDEL", KEYS[1], digest, digest .. ":recovered")
  redis.call("ZREM", KEYS[2], digest)
end
return #old
