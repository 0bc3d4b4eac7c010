-- fetch.lua: move jobs from queues into a process's private hash.
-- [REL-1] [REL-9] [REL-13] [REL-14] [REL-16] [REL-26] [FETCH-1] [FETCH-7]
-- KEYS[1]  private hash of the process: field `<sequence>:<queue>` -> payload
-- KEYS[2]  heartbeat hash of the process; while it exists, the process holds its lease
-- KEYS[3]  set of identities that own private entries
-- KEYS[4]  hash of unfinished jobs: SHA-1 of the payload -> times returned to its queue,
--          `<SHA-1>:recovered` -> how many of these were recoveries
-- KEYS[5]  set of names of paused queues
-- KEYS[6..]  queue lists, in the order to look at them
-- ARGV[1]  identity    ARGV[2]  how many jobs at most    ARGV[3]  first free sequence number
-- ARGV[4..]  queue names, one for each list
-- A job that was recovered is the last of its fetch.
-- Returns  nil without a lease; else {{field, payload, times returned, times recovered, ...},
--          {queue, error, ...}, {paused queue, ...}} of the queues that were looked at
if redis.call("EXISTS", KEYS[2]) == 0 then
  return false
end
-- After the first RPOP no command may fail, because a script is not rolled back. So detect keys of
-- another type now.
local private, owners = redis.call("TYPE", KEYS[1]).ok, redis.call("TYPE", KEYS[3]).ok
if private ~= "hash" and private ~= "none" then
  local problem = " is a " .. private .. ", not a hash: delete or rename it"
  return redis.error_reply("WRONGTYPE " .. KEYS[1] .. problem)
end
if owners ~= "set" and owners ~= "none" then
  local problem = " is a " .. owners .. ", not a set: delete or rename it"
  return redis.error_reply("WRONGTYPE " .. KEYS[3] .. problem)
end
-- The same for the rules of the user. A server before 7.0 cannot be asked.
for command, key in pairs({ hset = KEYS[1], sadd = KEYS[3] }) do
  if redis.acl_check_cmd and not redis.acl_check_cmd(command, key, "1:", "") then
    local problem = "NOPERM User has no permissions to run the '" .. command .. "' command on "
    return redis.error_reply(problem .. key)
  end
end
local wanted = tonumber(ARGV[2])
local sequence = tonumber(ARGV[3])
local taken, broken, paused = {}, {}, {}
local any_returned = redis.call("EXISTS", KEYS[4]) == 1
local any_paused = redis.call("EXISTS", KEYS[5]) == 1
for i = 6, #KEYS do
  if wanted <= 0 then
    break
  end
  local name = ARGV[i - 2]
  if any_paused and redis.pcall("SISMEMBER", KEYS[5], name) == 1 then
    paused[#paused + 1] = name
  end
  while wanted > 0 and paused[#paused] ~= name do
    -- Take one at a time if some were returned, to examine each before the next is taken.
    -- pcall: a key of another type must not stop the service of the other queues.
    local payloads = redis.pcall("RPOP", KEYS[i], any_returned and 1 or wanted)
    if not payloads then
      break
    end
    if payloads.err then
      -- The fault is not the key but a server after a failover, and the caller has to know.
      if string.find(payloads.err, "READONLY") or string.find(payloads.err, "NOREPLICAS") then
        return payloads
      end
      broken[#broken + 1] = name
      broken[#broken + 1] = payloads.err
      break
    end
    wanted = wanted - #payloads
    local entries = {}
    for _, payload in ipairs(payloads) do
      local field = string.format("%.0f:%s", sequence, name)
      sequence = sequence + 1
      entries[#entries + 1] = field
      entries[#entries + 1] = payload
      local times = {}
      if any_returned then
        local digest = redis.sha1hex(payload)
        times = redis.pcall("HMGET", KEYS[4], digest, digest .. ":recovered")
      end
      taken[#taken + 1] = field
      taken[#taken + 1] = payload
      taken[#taken + 1] = times[1] or "0"
      taken[#taken + 1] = times[2] or "0"
      if times[2] then
        wanted = 0 -- it may end its process again, and a job behind it would be counted as well
      end
    end
    for from = 1, #entries, 1000 do -- more than a few thousand values do not fit into one call
      redis.call("HSET", KEYS[1], unpack(entries, from, math.min(from + 999, #entries)))
    end
  end
end
if #taken > 0 then
  redis.call("SADD", KEYS[3], ARGV[1])
end
return { taken, broken, paused }
