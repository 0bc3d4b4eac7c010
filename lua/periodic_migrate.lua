-- periodic_migrate.lua: move entries from layout 1 to layout 2, with their ticks and histories.
-- [X-CRON-2] [X-CRON-3]
-- KEYS[1]  set of entries, layout 1    KEYS[2]  set of entries, layout 2
-- KEYS[3..]  sixes: hash, ticks, history of layout 1; hash, ticks, history of layout 2
-- ARGV[1]  namespace of the entries in layout 2
-- ARGV[2..]  for each entry, its member of KEYS[1], its member of KEYS[2], and its field `retry`
-- Returns  how many were moved; others have gone, or layout 2 already has an entry of the name
redis.call("SREM", KEYS[1], "") -- without effect: finds a rule that refuses it
local moved = 0
local word = 2
for key = 3, #KEYS, 6 do
  if redis.call("SISMEMBER", KEYS[1], ARGV[word]) == 1
    and redis.call("EXISTS", KEYS[key]) == 1
    and redis.call("EXISTS", KEYS[key + 3]) == 0
  then
    -- The hash moves last: until then, a command that is refused leaves the entry where it was.
    redis.call("HSET", KEYS[key], "namespace", ARGV[1])
    redis.call("HSETNX", KEYS[key], "retry", ARGV[word + 2])
    redis.call("HSETNX", KEYS[key], "source", "dynamic")
    redis.call("SADD", KEYS[2], ARGV[word + 1])
    -- Keys that an entry of layout 2 left behind belong to another entry.
    redis.call("DEL", KEYS[key + 4], KEYS[key + 5])
    for i = 1, 2 do
      if redis.call("EXISTS", KEYS[key + i]) == 1 then
        redis.call("RENAME", KEYS[key + i], KEYS[key + 3 + i])
      end
    end
    redis.call("RENAME", KEYS[key], KEYS[key + 3])
    redis.call("SREM", KEYS[1], ARGV[word])
    moved = moved + 1
  end
  word = word + 3
end
return moved
