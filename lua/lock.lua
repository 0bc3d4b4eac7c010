-- lock.lua: take the locks of unique jobs, and write the jobs that got theirs.
-- [X-UNIQ-3] [X-UNIQ-4] [X-UNIQ-5] [X-UNIQ-9]
-- KEYS[1]  set of queue names
-- KEYS[2..]  for each job: its place if it has one, a queue list or the schedule; its lock if it
--            has one
-- ARGV[1..]  for each job: queue name (empty: it is scheduled, or only locked), score (empty: it is
--            not scheduled), payload, id of the job (empty: it has no lock), `PX` or `PXAT`,
--            milliseconds
-- Returns  for each job the id of the job that has its lock; empty if the job was written, or was
--          written before by a call that got no reply

-- A script is not rolled back. So each key is checked before the first one is changed, and a lock
-- is released again if its job cannot be written.
local key, jobs = 1, {}
local kinds, held = {}, {} -- name of a place -> its type; name of a lock -> the job that has it
redis.call("SISMEMBER", KEYS[1], "")
for i = 1, #ARGV, 6 do
  local place, lock = 0, 0 -- their keys; 0: none
  if ARGV[i] ~= "" or ARGV[i + 1] ~= "" then
    key = key + 1
    place = key
    local wanted, name = ARGV[i] ~= "" and "list" or "zset", KEYS[place]
    local kind = kinds[name] or redis.call("TYPE", name).ok
    kinds[name] = kind
    if kind ~= wanted and kind ~= "none" then
      return redis.error_reply("WRONGTYPE " .. name .. " is not a " .. wanted)
    end
  end
  if ARGV[i + 3] ~= "" then
    key = key + 1
    lock = key
    held[KEYS[lock]] = redis.call("GET", KEYS[lock]) or ""
  end
  jobs[#jobs + 1] = { i, place, lock }
end
local holders, listed = {}, {}
for n, job in ipairs(jobs) do
  local i, place, lock = job[1], job[2], job[3]
  local jid, bound, ms = ARGV[i + 3], ARGV[i + 4], ARGV[i + 5]
  local holder = lock > 0 and (held[KEYS[lock]] or redis.call("GET", KEYS[lock])) or ""
  if holder == "" and ARGV[i] ~= "" and not listed[ARGV[i]] then
    redis.call("SADD", KEYS[1], ARGV[i])
    listed[ARGV[i]] = true
  end
  if lock > 0 and (holder == "" or holder == jid) then
    redis.call("SET", KEYS[lock], jid, bound, ms)
    held[KEYS[lock]] = nil -- a time in the past sets none, so a second job of the call asks again
  end
  if holder == "" and place > 0 then
    local written
    if ARGV[i] ~= "" then
      written = redis.pcall("LPUSH", KEYS[place], ARGV[i + 2])
    else
      written = redis.pcall("ZADD", KEYS[place], ARGV[i + 1], ARGV[i + 2])
    end
    if type(written) == "table" and written.err then
      if lock > 0 then
        redis.call("UNLINK", KEYS[lock])
      end
      return written
    end
  end
  holders[n] = holder ~= jid and holder or ""
end
return holders
