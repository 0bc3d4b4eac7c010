-- batch_start.lua: make a closed batch of jobs, and push the jobs, unless it was made before.
-- [X-FLOW-9]
-- KEYS[1]  set of queue names    KEYS[2]  batch    KEYS[3]  its open members
-- KEYS[4]  sorted set of cancelled jobs: id -> when    KEYS[5..]  queue list of each job
-- ARGV[1]  id of the batch, and of the job that makes it    ARGV[2]  queue name of its callback
-- ARGV[3]  the callback on_success    ARGV[4]  Unix seconds now
-- ARGV[5..]  for each job: queue name, payload, id of the job
-- Returns  1; 0 if the batch exists, or its job was cancelled, and nothing was changed
if redis.call("HGET", KEYS[2], "state") or redis.call("ZSCORE", KEYS[4], ARGV[1]) then
  return 0
end
-- A script is not rolled back. So each key is checked before the first one is changed, and a rule
-- that refuses a command that follows is found by a call without effect.
for i = 5, #KEYS do
  local kind = redis.call("TYPE", KEYS[i]).ok
  if kind ~= "list" and kind ~= "none" then
    return redis.error_reply("WRONGTYPE " .. KEYS[i] .. " is not a list")
  end
end
redis.call("SISMEMBER", KEYS[3], "")
redis.call("SADD", KEYS[1], ARGV[2])
redis.call("HSET", KEYS[2], "state", "closed", "on_success", ARGV[3], "queue", ARGV[2],
  "total", #KEYS - 4, "created_at", ARGV[4], "description", "group")
-- LPUSH to a hash only says whether LPUSH is allowed.
local refused = redis.pcall("LPUSH", KEYS[2], "").err
if not string.find(refused, "WRONGTYPE") then
  redis.call("HDEL", KEYS[2], "state", "on_success", "queue", "total", "created_at", "description")
  return redis.error_reply(refused)
end
for i = 5, #KEYS do
  local at = (i - 5) * 3 + 4
  if redis.call("SADD", KEYS[3], ARGV[at + 3]) == 1 then
    redis.call("SADD", KEYS[1], ARGV[at + 1])
    redis.call("LPUSH", KEYS[i], ARGV[at + 2])
  end
end
redis.pcall("EXPIRE", KEYS[2], 2592000)
redis.pcall("EXPIRE", KEYS[3], 2592000)
return 1
