-- limit_free.lua: free a slot, or say where a job waits; then give free slots to the jobs in line.
-- [X-LIMIT-5] [X-LIMIT-6] [X-LIMIT-7]
-- KEYS[1]  slots    KEYS[2]  line    KEYS[3]  hash of waiting jobs; see limit_take.lua
-- KEYS[4]  schedule    KEYS[5]  set of queue names    KEYS[6]  queue list of the caller's job
-- ARGV[1]  slot to free; empty for none    ARGV[2]  slots in all    ARGV[3]  ms of a lease
-- ARGV[4]  name of the queue KEYS[6]
-- ARGV[5]  id of the job that waits; empty for none
-- ARGV[6]  where it waits: `<cost>:<bytes of the queue's name>:<queue's name><member of schedule>`
-- Returns  how many jobs got a slot
-- A job goes to its queue if that is KEYS[6], to run next. Another one becomes due now.
redis.call("ZREM", KEYS[4], "\0") -- a rule that refuses it must not leave a job in two places
local kind = redis.call("TYPE", KEYS[6]).ok
local time = redis.call("TIME")
local now = time[1] * 1000 + math.floor(time[2] / 1000)
if ARGV[1] ~= "" then
  redis.call("ZREM", KEYS[1], ARGV[1])
end
redis.call("ZREMRANGEBYSCORE", KEYS[1], "-inf", now)
local away = "4503599627370496" -- 2^52: from there on, jobs that are missed where they wait
local place = ARGV[5] ~= "" and redis.call("ZSCORE", KEYS[2], ARGV[5])
if place then
  if tonumber(place) >= tonumber(away) then
    redis.call("ZADD", KEYS[2], place - away, ARGV[5])
  end
  redis.call("HSET", KEYS[3], ARGV[5], ARGV[6])
  redis.call("HDEL", KEYS[3], ARGV[5] .. ":missed")
  redis.call("PEXPIRE", KEYS[2], 86400000)
  redis.call("PEXPIRE", KEYS[3], 86400000)
end
local room = tonumber(ARGV[2])
local slots = redis.call("ZRANGE", KEYS[1], 0, -1, "WITHSCORES")
for i = 1, #slots, 2 do
  room = room - string.match(slots[i], "^%d+")
end

-- Return the cost of a job in line, its queue, and its member of schedule; nothing if it is missed.
local function find(jid)
  local waits = redis.call("HGET", KEYS[3], jid) or ""
  local cost, length, start = string.match(waits, "^(%d+):(%d+):()")
  local member = cost and string.sub(waits, start + length)
  if member and redis.call("ZSCORE", KEYS[4], member) then
    return tonumber(cost), string.sub(waits, start, start + length - 1), member
  end
end

-- A job that is missed is on its way to schedule or to a worker, which asks again, or was deleted.
-- It holds up no other job, and has its place again when it is back, for ten leases.
local missed = redis.call("ZRANGEBYSCORE", KEYS[2], away, "+inf", "WITHSCORES", "LIMIT", 0, 10)
for i = 1, #missed, 2 do
  local jid = missed[i]
  local since = redis.call("HGET", KEYS[3], jid .. ":missed") or 0
  if find(jid) then
    redis.call("ZADD", KEYS[2], missed[i + 1] - away, jid)
    redis.call("HDEL", KEYS[3], jid .. ":missed")
  elseif since + 10 * ARGV[3] < now then
    redis.call("ZREM", KEYS[2], jid)
    redis.call("HDEL", KEYS[3], jid, jid .. ":missed")
  end
end

local served = 0
-- Return false if the job must wait for room.
local function serve(jid, place)
  local cost, queue, member = find(jid)
  if not cost then
    redis.call("ZADD", KEYS[2], place + away, jid)
    redis.call("HSET", KEYS[3], jid .. ":missed", now)
    redis.call("PEXPIRE", KEYS[3], 86400000)
  elseif cost > room then
    -- If no process frees a slot, the first lease that ends frees one, and the job asks again then.
    redis.call("ZADD", KEYS[4], "XX", (slots[2] or now + ARGV[3]) / 1000, member)
    return false
  else
    redis.call("ZADD", KEYS[1], now + ARGV[3], cost .. ":" .. jid .. ":")
    redis.call("PEXPIRE", KEYS[1], ARGV[3])
    redis.call("ZREM", KEYS[2], jid)
    redis.call("HDEL", KEYS[3], jid)
    if queue == ARGV[4] and (kind == "list" or kind == "none") then
      redis.pcall("SADD", KEYS[5], queue)
      redis.call("RPUSH", KEYS[6], member)
      redis.call("ZREM", KEYS[4], member)
    else
      redis.call("ZADD", KEYS[4], "XX", now / 1000, member)
    end
    room = room - cost
    served = served + 1
  end
  return true
end
local fits = true
local few = math.max(1, math.min(room + 1, 100)) -- as a line may be long, and mostly few fit
for _ = 1, 100 do
  local line = redis.call("ZRANGEBYSCORE", KEYS[2], 0, "(" .. away, "WITHSCORES", "LIMIT", 0, few)
  few = 100
  for i = 1, #line, 2 do
    fits = fits and serve(line[i], line[i + 1])
  end
  if not fits or #line == 0 then
    break
  end
end
return served
