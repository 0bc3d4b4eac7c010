-- limit_rate.lua: let a job start within a rate, or reserve the time at which it may.
-- [X-LIMIT-8] [X-LIMIT-9]
-- KEYS[1]  string: the time at which the bucket is full again, microseconds
-- KEYS[2]  sorted set: id of a waiting job -> its time, microseconds
-- KEYS[3]  sorted set of all limits: description -> last use, ms
-- ARGV[1]  id of the job    ARGV[2]  microseconds in which the bucket gains the cost of the job
-- ARGV[3]  microseconds in which an empty bucket becomes full
-- ARGV[4]  microseconds after its time in which a job may start    ARGV[5]  description of the limit
-- Returns  0 if the job may start, else the microseconds that it must wait
local time = redis.call("TIME")
local now = time[1] * 1000000 + time[2]
local full = math.max(tonumber(redis.call("GET", KEYS[1]) or 0), now)
redis.call("ZREMRANGEBYSCORE", KEYS[2], "-inf", "(" .. string.format("%.0f", now - ARGV[4]))
local at = tonumber(redis.call("ZSCORE", KEYS[2], ARGV[1]) or nil)
if not at then
  full = full + ARGV[2]
  at = full - ARGV[3]
  redis.call("SET", KEYS[1], string.format("%.0f", full), "PX", math.ceil((full - now) / 1000))
  redis.call("ZADD", KEYS[3], math.floor(now / 1000), ARGV[5])
  redis.call("ZREMRANGEBYSCORE", KEYS[3], "-inf", math.floor(now / 1000) - 86400000)
  if at > now then
    redis.call("ZADD", KEYS[2], string.format("%.0f", at), ARGV[1])
    redis.call("PEXPIRE", KEYS[2], math.ceil((at - now + ARGV[4]) / 1000))
  end
end
if at > now then
  return math.ceil(at - now)
end
redis.call("ZREM", KEYS[2], ARGV[1])
return 0
