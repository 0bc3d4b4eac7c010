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

class NotFilledIn < StandardError; end

# Push one job with your client, to REDIS_URL, and return its jid.
#
# `job` holds "class", "args" and options under their names in the payload: "queue", "retry",
# "tags". `at` is the time to run it, in epoch seconds; `delay` is seconds from now; both are nil
# for a job that is due at once. Some requests hold invalid values, on purpose. Raise Rejected if
# your client refuses the job, and Unknown if it cannot know whether the job was written. Any other
# exception is answered as unknown.
def push(job, at, delay)
  raise NotFilledIn
end

# Carry out one request; return the answer without its id.
def perform(op, line)
  case op
  when "hello" then { ok: { driver: 1, version: VERSION, ops: OPERATIONS } }
  when "push"
    request = JSON.parse(line, max_nesting: false)
    { ok: { jid: push(request["job"], request["at"], request["in"]) } }
  when "bye" then { ok: {} }
  else { unsupported: true }
  end
end

# Return the answer to one request, without its id. No exception may end the driver.
def answer(op, line)
  perform(op, line)
rescue NotFilledIn
  warn "driver.rb: fill in `push`"
  { unsupported: true }
rescue Rejected => error
  failure("rejected", error)
rescue Unknown => error
  failure("unknown", error)
rescue StandardError, ScriptError, NoMemoryError, SystemStackError => error
  warn error.full_message(highlight: false)
  failure("unknown", error)
end

def failure(kind, error)
  { error: { kind: kind, message: "#{error.class}: #{error.message}".scrub } }
end

$stdout.sync = true
$stdin.each_line do |line|
  # Every request begins with id and op, without spaces: {"id":1,"op":"push",...
  begin_of_line = line.match(/\A\{"id":(\d+),"op":"(\w+)"/) or abort "driver.rb: not a request: #{line}"
  id, op = begin_of_line.captures
  puts JSON.generate({ id: id.to_i, **answer(op, line) })
  break if op == "bye"
end
