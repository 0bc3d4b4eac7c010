# Driver of `jobwire conform`: pushes jobs with our client. Fill in `push`; the rest is done.
# Standard output is for answers only; logs go to standard error.
# frozen_string_literal: true

require "json"

VERSION = "0" # of the implementation
OPERATIONS = ["push"].freeze
REDIS_URL = ENV.fetch("JOBWIRE_REDIS_URL", "")
GENERATION = ENV.fetch("JOBWIRE_GENERATION", "8") # 7: times in seconds, 8: milliseconds

# The client refused the job, and nothing was written.
class Rejected < StandardError; end

# The connection failed. The client cannot know whether the job was written.
class Unknown < StandardError; end

# Push one job with your client, to REDIS_URL, and return its jid.
#
# `job` holds "class", "args" and options under their names in the payload: "queue", "retry",
# "tags". `at` is the time to run it, in epoch seconds; `delay` is seconds from now; both are nil
# for a job that is due at once. Some requests hold invalid values, on purpose. Raise Rejected if
# your client refuses the job, and Unknown if it cannot know whether the job was written.
def push(job, at, delay)
  raise NotImplementedError
end

# The answer to one request, without its id.
def answer(request)
  case request["op"]
  when "hello" then { ok: { driver: 1, version: VERSION, ops: OPERATIONS } }
  when "push" then { ok: { jid: push(request["job"], request["at"], request["in"]) } }
  when "bye" then { ok: {} }
  else { unsupported: true }
  end
rescue Rejected => error
  { error: { kind: "rejected", message: error.message } }
rescue Unknown => error
  { error: { kind: "unknown", message: error.message } }
rescue NotImplementedError
  warn "driver.rb: fill in `push`"
  { unsupported: true }
end

$stdout.sync = true
$stdin.each_line do |line|
  request = JSON.parse(line)
  puts JSON.generate({ id: request["id"], **answer(request) })
  break if request["op"] == "bye"
end
