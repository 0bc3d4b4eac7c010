-- limit_window.lua: let a job start within a window, or keep its number and say when to ask again.
-- [X-LIMIT-10] [X-LIMIT-11]
-- KEYS[1]  sorted set: `<cost>:<microsecond of its start; empty if it waits>:<id of the job>` -> its
--          number; a job of a cost has as many numbers, and its first one here
-- KEYS[2]  sorted set: id of a waiting job -> time at which it asks again, microseconds
-- KEYS[3]  sorted set of all limits: description -> last use, ms
-- ARGV[1]  id of the job    ARGV[2]  its cost    ARGV[3]  numbers that may start in a window
-- ARGV[4]  microseconds of a window
-- ARGV[5]  microseconds after its time in which a job may come    ARGV[6]  description of the limit
-- Returns  0 if the job may start, else the microseconds that it must wait
local time = redis.call("TIME")
local now = time[1] * 1000000 + time[2]
local waits = ARGV[2] .. "::" .. ARGV[1]

-- Return the start of the job of an entry; or the time at which the job asks again, and its id.
local function time_of(member)
  local start, jid = string.match(member, "^%d+:(%d*):(.*)$")
  if start ~= "" then
    return tonumber(start)
  end
  return tonumber(redis.call("ZSCORE", KEYS[2], jid) or 0), jid
end

-- Entries leave from below only, so that each one holds back all numbers that are a window above.
local first, first_at, leaves
repeat
  first = redis.call("ZRANGE", KEYS[1], 0, 0, "WITHSCORES")
  local jid
  if first[1] then
    first_at, jid = time_of(first[1])
    leaves = first_at + (jid and ARGV[5] or ARGV[4])
  end
  local gone = first[1] and first[1] ~= waits and leaves <= now
  if gone then
    redis.call("ZREM", KEYS[1], first[1])
    redis.call("ZREM", KEYS[2], jid or "")
  end
until not gone

local number = tonumber(redis.call("ZSCORE", KEYS[1], waits) or nil)
if not number then
  local last = redis.call("ZRANGE", KEYS[1], -1, -1, "WITHSCORES")
  number = last[1] and last[2] + string.match(last[1], "^%d+") or 0
end
local below = number + ARGV[2] - 1 - ARGV[3] -- no entry up to this number may hold it back
local at = now
if first[1] and tonumber(first[2]) <= below then
  local count = redis.call("ZCOUNT", KEYS[1], "-inf", below)
  local last = redis.call("ZRANGE", KEYS[1], count - 1, count - 1)[1]
  at = math.max(math.min(leaves, now + ARGV[4]), time_of(last) + ARGV[4])
  redis.call("ZADD", KEYS[1], number, waits)
  redis.call("ZADD", KEYS[2], string.format("%.0f", at), ARGV[1])
else
  redis.call("ZREM", KEYS[1], waits)
  redis.call("ZREM", KEYS[2], ARGV[1])
  redis.call("ZADD", KEYS[1], number, string.format("%s:%.0f:%s", ARGV[2], now, ARGV[1]))
end
local last_at = redis.call("ZRANGE", KEYS[2], -1, -1, "WITHSCORES")[2] or now
local life = math.ceil((math.max(last_at, now) - now + ARGV[4] + ARGV[5]) / 1000)
redis.call("PEXPIRE", KEYS[1], life)
redis.call("PEXPIRE", KEYS[2], life)
redis.call("ZADD", KEYS[3], math.floor(now / 1000), ARGV[6])
redis.call("ZREMRANGEBYSCORE", KEYS[3], "-inf", math.floor(now / 1000) - 86400000)
return math.ceil(at - now)
