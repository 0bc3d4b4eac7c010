-- batch_add.lua: push jobs, and enter them in their batch.
-- [X-BATCH-2] [X-BATCH-3]
-- KEYS[1]  set of queue names    KEYS[2]  batch    KEYS[3]  its open members
-- KEYS[4]  its failed members
-- KEYS[5..]  these three of each batch around it, and then the queue list of each job
-- ARGV[1]  number of batches, with those around it
-- ARGV[2..]  for each job: queue name, payload, id of the job
-- Returns  the state of the batch: `open` or `closed` if the jobs were written; otherwise nothing was
--          changed: `complete`, `cancelled`, or empty if the batch does not exist any more

-- A script is not rolled back. So each key is checked before the first one is changed.
local state = redis.call("HGET", KEYS[2], "state") or ""
local last = 3 * ARGV[1] + 1 -- key of the last batch
for outer = 5, last, 3 do
  if redis.pcall("HGET", KEYS[outer], "state") == "cancelled" then
    state = "cancelled"
  end
end
if state ~= "open" and state ~= "closed" then
  return state
end
redis.call("SISMEMBER", KEYS[1], "")
redis.call("SISMEMBER", KEYS[3], "")
redis.call("SISMEMBER", KEYS[4], "")
redis.call("HINCRBY", KEYS[2], "total", 0)
for i = last + 1, #KEYS do
  local kind = redis.call("TYPE", KEYS[i]).ok
  if kind ~= "list" and kind ~= "none" then
    return redis.error_reply("WRONGTYPE " .. KEYS[i] .. " is not a list")
  end
end
local added = 0
for i = last + 1, #KEYS do
  local at = (i - last) * 3 - 2
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
for key = 2, last do
  redis.pcall("EXPIRE", KEYS[key], 2592000)
end
return state
