# Worker of `jobwire conform`: our worker with the five standard jobs. Fill in `start`.
# frozen_string_literal: true

require "json"
require "socket"
require "uri"

# Return a setting of the suite.
def setting(name, default)
  ENV.fetch("JOBWIRE_#{name}", default)
end

REDIS_URL = setting("REDIS_URL", "redis://127.0.0.1:6379/0")
QUEUES = setting("QUEUES", "default").split(",") # `a:5` has weight 5; without weights: strict
CONCURRENCY = setting("CONCURRENCY", "1").to_i
POLL = setting("POLL", "5").to_f # seconds between looks for due jobs
BEAT = setting("BEAT", "10").to_f # seconds between heartbeats
GRACE = setting("GRACE", "25").to_f # seconds for running jobs after SIGTERM
GENERATION = setting("GENERATION", "8") # 7: times in seconds, 8: milliseconds
RUN = setting("RUN", "run")

# The error of failing jobs. The suite checks its name.
class JobwireError < StandardError; end

class NotFilledIn < StandardError; end

# Register these under their names with your worker, and run it until SIGTERM. Each takes the jid,
# then the arguments of the job.
def start(jobs)
  raise NotFilledIn
end

# Push `job` with your client. It has class and args, and perhaps queue.
def push(job)
  raise NotFilledIn
end

def echo(jid, *args)
  report("begin", jid, args: args)
  report("end", jid, ok: true)
end

def fail_with(jid, message)
  report("begin", jid, args: [message])
  report("end", jid, ok: false)
  raise JobwireError, message
end

def flaky(jid, times)
  report("begin", jid, args: [times])
  count = control("INCR", "jw:#{RUN}:n:#{jid}")
  report("end", jid, ok: count > times)
  raise JobwireError, "time #{count} of #{times}" if count <= times
end

def gate(jid, name)
  report("begin", jid, args: [name])
  control("BLPOP", "jw:#{RUN}:gate:#{name}", "0")
  report("end", jid, ok: true)
end

def spawn_job(jid, job)
  report("begin", jid, args: [job])
  push(job)
  report("end", jid, ok: true)
end

# Report an event of a job to the suite.
def report(event, jid, **members)
  control("RPUSH", "jw:#{RUN}:ev", JSON.generate({ ev: event, jid: jid, **members }))
end

# Send one command to the control Redis and return the reply. You can use your own client.
def control(*words)
  url = URI.parse(setting("CONTROL_URL", REDIS_URL))
  command = "*#{words.size}\r\n" + words.map { |word| "$#{word.bytesize}\r\n#{word}\r\n" }.join
  TCPSocket.open(url.host, url.port) do |connection|
    connection.write("SELECT #{url.path.delete("/").to_i}\r\n#{command}")
    reply(connection)
    reply(connection)
  end
end

# Read one reply.
def reply(connection)
  line = connection.gets.chomp
  text = line[1..]
  case line[0]
  when "$" then text.to_i.negative? ? nil : connection.read(text.to_i + 2)[0...-2]
  when "*" then Array.new(text.to_i) { reply(connection) }
  when ":" then text.to_i
  when "+" then text
  else raise "the control Redis replied #{line}"
  end
end

JOBS = {
  "JobwireEcho" => method(:echo),
  "JobwireFail" => method(:fail_with),
  "JobwireFlaky" => method(:flaky),
  "JobwireGate" => method(:gate),
  "JobwireSpawn" => method(:spawn_job)
}.freeze

begin
  start(JOBS)
rescue NotFilledIn
  abort "worker.rb: fill in `start`"
end
