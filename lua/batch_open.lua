-- batch_open.lua: make a batch, open for members, and enter it in the batch around it.
-- [X-BATCH-1] [X-BATCH-9]
-- KEYS[1]  batch    KEYS[2]  the batch around it, if there is one    KEYS[3]  open members of that
-- KEYS[4..]  failed members of that; then these three of each batch around that
-- ARGV[1..]  field and value, of each field of the batch
-- Returns  `open`, or the state of the batch around it: `open` or `closed` if the batch was made;
--          otherwise nothing was changed: `complete`, `cancelled`, or empty if that does not exist

-- A script is not rolled back. So each key is checked before the first one is changed.
local state = "open"
if KEYS[2] then
  state = redis.call("HGET", KEYS[2], "state") or ""
  for outer = 5, #KEYS, 3 do
    if redis.pcall("HGET", KEYS[outer], "state") == "cancelled" then
      state = "cancelled"
    end
  end
  if state ~= "open" and state ~= "closed" then
    return state
  end
  redis.call("SISMEMBER", KEYS[3], "")
  redis.call("HINCRBY", KEYS[2], "total", 0)
end
redis.call("HSET", KEYS[1], unpack(ARGV))
redis.call("EXPIRE", KEYS[1], 2592000)
if KEYS[2] then
  redis.call("SADD", KEYS[3], string.match(KEYS[1], "batch:[^:]*$"))
  redis.call("HINCRBY", KEYS[2], "total", 1)
  for key = 2, #KEYS do
    redis.pcall("EXPIRE", KEYS[key], 2592000)
  end
end
return state
