-- periodic_load.lua: save entries, and remove those that have left the schedule. [X-CRON-34]
-- [X-CRON-35] [X-CRON-36] [X-CRON-39]
-- KEYS[1]  set of entries
-- KEYS[2..]  threes: hash, sorted set of ticks, history of each entry to remove; then pairs: hash,
--            sorted set of ticks of each entry to save
-- ARGV[1]  SHA-1 of the sorted members of KEYS[1] that the caller has seen, or an empty text
-- ARGV[2]  name of the schedule    ARGV[3]  how many entries to remove
-- ARGV[4..]  members of KEYS[1] to remove; then for each entry to save its member of KEYS[1], the
--            text of its latest tick or an empty text, that tick, how many words follow, and names
--            and values; a name that begins with `?` is written only if the hash does not have it
-- Returns  how many were removed, or -1: KEYS[1] has changed
local known = redis.call("SMEMBERS", KEYS[1])
table.sort(known)
if ARGV[1] ~= "" and redis.sha1hex(table.concat(known, "\n")) ~= ARGV[1] then
  return -1
end
-- A script is not rolled back. So an entry gets its fields before its name and loses them before it,
-- and a rule that refuses SREM is found by a call without effect.
redis.call("SREM", KEYS[1], "")
local removed = 0
local key, word = 2 + 3 * ARGV[3], 4 + ARGV[3]
while key < #KEYS do
  local hash = KEYS[key]
  local ticks = KEYS[key + 1]
  local line = redis.call("HGET", hash, "cron")
  local zone = redis.call("HGET", hash, "jw_tz")
  local status = redis.call("HGET", hash, "status")
  local last = word + 3 + ARGV[word + 3]
  for i = word + 4, last, 2 do
    if string.sub(ARGV[i], 1, 1) == "?" then
      redis.call("HSETNX", hash, string.sub(ARGV[i], 2), ARGV[i + 1])
    else
      redis.call("HSET", hash, ARGV[i], ARGV[i + 1])
    end
  end
  -- Ticks before this moment are not those of the entry as it is now.
  local changed = redis.call("HGET", hash, "cron") ~= line
    or redis.call("HGET", hash, "jw_tz") ~= zone
    or (status and status ~= "enabled" and redis.call("HGET", hash, "status") == "enabled")
  if ARGV[word + 1] ~= "" and (changed or redis.call("EXISTS", ticks) == 0) then
    redis.call("ZADD", ticks, "NX", ARGV[word + 2], ARGV[word + 1])
  end
  redis.call("SADD", KEYS[1], ARGV[word])
  key, word = key + 2, last + 1
end
key, word = 2, 4
for _ = 1, ARGV[3] do
  -- An entry that another program has taken over is not of this schedule any more.
  if redis.call("HGET", KEYS[key], "jw_source") == ARGV[2] then
    redis.call("DEL", KEYS[key], KEYS[key + 1], KEYS[key + 2])
    redis.call("SREM", KEYS[1], ARGV[word])
    removed = removed + 1
  end
  key, word = key + 3, word + 1
end
return removed
