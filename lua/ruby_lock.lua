-- ruby_lock.lua: take a lock of sidekiq-unique-jobs, or delete what is left of one.
-- [X-ADDON-2] [X-ADDON-6]
-- KEYS[1]  lock, a hash: id of a job that has it -> time    KEYS[2]  id of the last job in line
-- KEYS[3]  description    KEYS[4]  taken by waiting threads    KEYS[5]  list that wakes them
-- KEYS[6]  sorted set of all locks: name -> time
-- ARGV[1]  name    ARGV[2]  id of the job that needs it; empty: it is free if no job has it
-- ARGV[3]  how many jobs may have it    ARGV[4]  now, Unix seconds    ARGV[5]  ms; 0: no bound
-- Returns  1 if the job has the lock, else 0
if ARGV[2] ~= "" then
  if redis.call("HEXISTS", KEYS[1], ARGV[2]) == 1 then
    return 1
  end
  if redis.call("HLEN", KEYS[1]) >= tonumber(ARGV[3]) then
    return 0
  end
  redis.call("ZADD", KEYS[6], ARGV[4], ARGV[1]) -- first: the reaper of Ruby finds the lock by it
  redis.call("SET", KEYS[2], ARGV[2])
  redis.call("HSET", KEYS[1], ARGV[2], ARGV[4])
  if ARGV[5] ~= "0" then
    redis.call("PEXPIRE", KEYS[1], ARGV[5])
    redis.call("PEXPIRE", KEYS[2], ARGV[5])
  end
  return 1
end
if redis.call("EXISTS", KEYS[1]) == 0 then
  redis.call("UNLINK", KEYS[2], KEYS[3], KEYS[4])
  redis.call("ZREM", KEYS[6], ARGV[1])
  redis.call("LPUSH", KEYS[5], "1")
  redis.call("PEXPIRE", KEYS[5], 5000)
end
return 0
