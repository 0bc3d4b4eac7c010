-- periodic_tick.lua: take ticks of one entry and push a job for each that this call took.
-- [X-CRON-17] [X-CRON-18] [X-CRON-20] [X-CRON-23] [X-CRON-25] [X-CRON-26]
-- KEYS[1]  set of entries    KEYS[2]  hash of the entry
-- KEYS[3]  sorted set: text of a tick that was taken -> tick    KEYS[4]  list of the newest pushes
-- KEYS[5]  set of queue names    KEYS[6]  queue list
-- KEYS[7..]  hashes of jobs that processes hold; a job in one of them, or in KEYS[6], is not finished
-- ARGV[1]  member of KEYS[1]    ARGV[2]  digest of the entry, see periodic_look.lua
-- ARGV[3]  queue name    ARGV[4]  now, Unix seconds    ARGV[5]  seconds to remember ticks
-- ARGV[6]  pushes to keep in KEYS[4]    ARGV[7]  1 if a tick is skipped while the job of the newest
--          push is not finished    ARGV[8]  how many names of fields follow
-- ARGV[9..]  these names; then fives, earlier ticks first: tick, its text, its time for
--            `last_enqueue_time`, entry of the history, payload
-- Returns  for each tick 1: pushed, 0: taken before, 2: taken without a push;
--          or -1: the entry has changed, -2: the queue is not a list
local names = tonumber(ARGV[8])
if redis.call("SISMEMBER", KEYS[1], ARGV[1]) == 0 then
  return -1
end
local parts = {}
for n, value in ipairs(redis.call("HMGET", KEYS[2], unpack(ARGV, 9, 8 + names))) do
  parts[n] = value and #value .. ":" .. value or "-"
end
if redis.sha1hex(table.concat(parts)) ~= ARGV[2] then
  return -1
end
-- A script is not rolled back. So each key is checked before the first write, and the job is
-- pushed before its tick is taken.
local kind = redis.call("TYPE", KEYS[6]).ok
if kind ~= "list" and kind ~= "none" then
  return -2
end
kind = redis.call("TYPE", KEYS[4]).ok
if ARGV[7] == "1" and kind ~= "list" and kind ~= "none" then
  local problem = " is a " .. kind .. ", not a list: delete or rename it"
  return redis.error_reply("WRONGTYPE " .. KEYS[4] .. problem)
end

local function holds(values, jid)
  for _, value in ipairs(values) do
    if string.find(value, jid, 1, true) then
      return true
    end
  end
  return false
end

local function unfinished()
  local newest = redis.call("LINDEX", KEYS[4], 0)
  local jid = newest and string.match(newest, '"jid":"([^"]+)"')
  if not jid then
    return false
  end
  for i = 7, #KEYS do
    if redis.call("TYPE", KEYS[i]).ok == "hash" and holds(redis.call("HVALS", KEYS[i]), jid) then
      return true
    end
  end
  -- From the head: the newest push is near it.
  for start = 0, redis.call("LLEN", KEYS[6]) - 1, 1000 do
    if holds(redis.call("LRANGE", KEYS[6], start, start + 999), jid) then
      return true
    end
  end
  return false
end

local forget = ARGV[4] - ARGV[5]
local newest = redis.call("ZRANGE", KEYS[3], -1, -1, "WITHSCORES")[2]
local forget_until = forget
local results, taken = {}, false
-- Without effect: a rule that refuses these commands is found before a job is pushed.
redis.call("ZREMRANGEBYSCORE", KEYS[3], 1, 0)
redis.call("ZADD", KEYS[3], "XX", ARGV[9 + names], ARGV[10 + names])
for i = 9 + names, #ARGV, 5 do
  local tick = tonumber(ARGV[i])
  local result = 0
  -- The set does not remember older ticks, so only those after all others are surely not taken.
  if tick >= forget or not newest or tonumber(newest) < tick then
    if not redis.call("ZSCORE", KEYS[3], ARGV[i + 1]) then
      result = 1
      if ARGV[7] == "1" and unfinished() then
        result = 2
      end
    end
  end
  if result > 0 then
    redis.call("HSET", KEYS[2], "last_enqueue_time", ARGV[i + 2])
  end
  if result == 1 then
    redis.call("LPUSH", KEYS[6], ARGV[i + 4])
    redis.pcall("LPUSH", KEYS[4], ARGV[i + 3])
    redis.pcall("SADD", KEYS[5], ARGV[3])
  end
  if result > 0 then
    redis.call("ZADD", KEYS[3], ARGV[i], ARGV[i + 1])
    newest = math.max(tick, tonumber(newest or tick))
    forget_until = math.min(forget, tick)
    taken = true
  end
  results[#results + 1] = result
end
if taken then
  redis.pcall("LTRIM", KEYS[4], 0, ARGV[6] - 1)
  redis.call("ZREMRANGEBYSCORE", KEYS[3], "-inf", "(" .. string.format("%.17g", forget_until))
end
return results
