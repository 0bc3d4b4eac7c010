-- periodic_look.lua: return the periodic entries that changed since the caller read them. [X-CRON-3]
-- KEYS[1]  set of entries, layout 1    KEYS[2]  set of entries, layout 2
-- KEYS[3..]  hashes of the entries that the caller knows
-- ARGV[1]  how many names of fields follow
-- ARGV[2..]  these names; then, for each hash, the digest that the caller has, or an empty text
-- Returns  {members of KEYS[1], members of KEYS[2], threes: number of the hash (1 is KEYS[3]),
--          digest, fields and values}; the digest is the SHA-1 of the lengths and values of the
--          named fields
local first, second = {}, {}
if redis.call("TYPE", KEYS[1]).ok == "set" then
  first = redis.call("SMEMBERS", KEYS[1])
end
if redis.call("TYPE", KEYS[2]).ok == "set" then
  second = redis.call("SMEMBERS", KEYS[2])
end
local count = tonumber(ARGV[1])
local names, changed = {}, {}
for n = 1, count do
  names[n] = ARGV[1 + n]
end
for i = 3, #KEYS do
  local parts, fields = {}, {}
  if redis.call("TYPE", KEYS[i]).ok == "hash" then
    for n, value in ipairs(redis.call("HMGET", KEYS[i], unpack(names))) do
      parts[n] = value and #value .. ":" .. value or "-"
    end
  end
  local digest = redis.sha1hex(table.concat(parts))
  if digest ~= ARGV[count + i - 1] then
    if #parts > 0 then
      fields = redis.call("HGETALL", KEYS[i])
    end
    changed[#changed + 1] = i - 2
    changed[#changed + 1] = digest
    changed[#changed + 1] = fields
  end
end
return { first, second, changed }
