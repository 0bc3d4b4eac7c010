-- fetch.lua: move jobs from queues into a process's private hash. [REL-1] [REL-3] [FETCH-1] [FETCH-7]
-- KEYS[1]  private hash of the process: field `<sequence>:<queue>` -> payload
-- KEYS[2]  heartbeat hash of the process; while it exists, the process holds its lease
-- KEYS[3]  set of identities that own private entries
-- KEYS[4..]  queue lists, in the order to look at them
-- ARGV[1]  identity    ARGV[2]  how many jobs at most    ARGV[3]  first free sequence number
-- ARGV[4..]  queue names, one for each list
-- Returns  nil without a lease; else {{field, payload, ...}, {queue, error, ...}}
if redis.call("EXISTS", KEYS[2]) == 0 then
  return false
end
local wanted = tonumber(ARGV[2])
local sequence = tonumber(ARGV[3])
local taken, broken = {}, {}
for i = 4, #KEYS do
  if wanted <= 0 then
    break
  end
  -- pcall: a key of another type must not keep the other queues from being served.
  local payloads = redis.pcall("RPOP", KEYS[i], wanted)
  if payloads and payloads.err then
    broken[#broken + 1] = ARGV[i]
    broken[#broken + 1] = payloads.err
  elseif payloads then
    for _, payload in ipairs(payloads) do
      taken[#taken + 1] = string.format("%.0f:%s", sequence, ARGV[i])
      taken[#taken + 1] = payload
      sequence = sequence + 1
    end
    wanted = wanted - #payloads
  end
end
if #taken > 0 then
  -- Known as an owner before it owns anything: recovery finds every entry.
  redis.call("SADD", KEYS[3], ARGV[1])
  redis.call("HSET", KEYS[1], unpack(taken))
end
return { taken, broken }
