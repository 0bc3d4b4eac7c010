-- batch_add.lua: push jobs, and enter them in their batch.
-- [X-BATCH-2] [X-BATCH-3]
-- KEYS[1]  set of queue names    KEYS[2]  batch    KEYS[3]  its open members
-- KEYS[4]  its failed members    KEYS[5..]  queue list of each job
-- ARGV[1..]  for each job: queue name, payload, id of the job
-- Returns  the state of the batch: `open` or `closed` if the jobs were written; otherwise nothing was
--          changed: `complete`, `cancelled`, or empty if the batch does not exist any more

-- A script is not rolled back. So each key is checked before the first one is changed.
local state = redis.call("HGET", KEYS[2], "state") or ""
if state ~= "open" and state ~= "closed" then
  return state
end
redis.call("SISMEMBER", KEYS[1], "")
redis.call("SISMEMBER", KEYS[3], "")
redis.call("SISMEMBER", KEYS[4], "")
redis.call("HINCRBY", KEYS[2], "total", 0)
for i = 5, #KEYS do
  local kind = redis.call("TYPE", KEYS[i]).ok
  if kind ~= "list" and kind ~= "none" then
    return redis.error_reply("WRONGTYPE " .. KEYS[i] .. " is not a list")
  end
end
local added = 0
for i = 5, #KEYS do
  local at = (i - 5) * 3
  local jid = ARGV[at + 3]
  if redis.call("SISMEMBER", KEYS[4], jid) == 0 and redis.call("SADD", KEYS[3], jid) == 1 then
    redis.call("SADD", KEYS[1], ARGV[at + 1])
    local written = redis.pcall("LPUSH", KEYS[i], ARGV[at + 2])
    if type(written) == "table" and written.err then
      redis.call("SREM", KEYS[3], jid)
      return written
    end
    added = added + 1
  end
end
redis.call("HINCRBY", KEYS[2], "total", added)
redis.pcall("EXPIRE", KEYS[2], 2592000)
redis.pcall("EXPIRE", KEYS[3], 2592000)
redis.pcall("EXPIRE", KEYS[4], 2592000)
return state
