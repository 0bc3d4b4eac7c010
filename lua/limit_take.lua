-- limit_take.lua: take a slot of a limit, or a place in its line; or renew the lease of a slot.
-- [X-LIMIT-3] [X-LIMIT-4] [X-LIMIT-6] [X-LIMIT-7]
-- KEYS[1]  slots, a sorted set: slot `<cost>:<jid>:<token>`, with an empty token if it is kept for a
--          job on its way -> end of its lease, ms
-- KEYS[2]  line, a sorted set: id of a waiting job -> its place, plus 2^52 if it was missed where it
--          waits
-- KEYS[3]  hash: id of a waiting job -> where it waits; `<jid>:missed` -> when it was missed there
-- KEYS[4]  sorted set of all limits: description -> last use, ms
-- ARGV[1]  1 to renew the lease of a slot, else 0    ARGV[2]  cost    ARGV[3]  id of the job
-- ARGV[4]  token of the execution    ARGV[5]  slots in all    ARGV[6]  ms of a lease
-- ARGV[7]  description of the limit
-- Returns  1 if the job has a slot, 0 if it must wait; then it has a place in the line
local time = redis.call("TIME")
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local kept = ARGV[2] .. ":" .. ARGV[3] .. ":"
local slot = kept .. ARGV[4]
if ARGV[1] == "1" then -- a slot that was freed meanwhile stays free
  redis.call("ZADD", KEYS[1], "XX", now + ARGV[6], slot)
  redis.call("PEXPIRE", KEYS[1], ARGV[6])
  return 1
end
local starts, room = false, tonumber(ARGV[5])
for _, other in ipairs(redis.call("ZRANGEBYSCORE", KEYS[1], "(" .. now, "+inf")) do
  starts = starts or other == kept
  room = room - string.match(other, "^%d+")
end
local away = "4503599627370496" -- 2^52: from there on, jobs that limit_free.lua missed
local place = redis.call("ZSCORE", KEYS[2], ARGV[3])
if place and tonumber(place) >= tonumber(away) then
  place = string.format("%.0f", place - away)
  redis.call("ZADD", KEYS[2], place, ARGV[3])
  redis.call("HDEL", KEYS[3], ARGV[3] .. ":missed")
end
if not starts and room >= tonumber(ARGV[2]) then -- a job that waits goes first
  starts = redis.call("ZCOUNT", KEYS[2], "-inf", place and "(" .. place or "+inf") == 0
end
redis.call("ZREMRANGEBYSCORE", KEYS[1], "-inf", now)
redis.call("ZADD", KEYS[4], now, ARGV[7])
redis.call("ZREMRANGEBYSCORE", KEYS[4], "-inf", now - 86400000)
if starts then
  redis.call("ZADD", KEYS[1], now + ARGV[6], slot)
  redis.call("PEXPIRE", KEYS[1], ARGV[6])
  redis.call("ZREM", KEYS[1], kept)
  redis.call("ZREM", KEYS[2], ARGV[3])
  redis.call("HDEL", KEYS[3], ARGV[3], ARGV[3] .. ":missed")
elseif not place then
  local below, first = "(" .. away, { "BYSCORE", "REV", "LIMIT", 0, 1, "WITHSCORES" }
  local last = redis.call("ZRANGE", KEYS[2], below, 0, unpack(first))
  local next = math.max(time[1] * 1000000 + time[2], (tonumber(last[2]) or 0) + 1)
  redis.call("ZADD", KEYS[2], next, ARGV[3])
  redis.call("PEXPIRE", KEYS[2], 86400000)
end
return starts and 1 or 0
