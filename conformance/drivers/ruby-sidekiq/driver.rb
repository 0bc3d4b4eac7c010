# frozen_string_literal: true

# Sidekiq's client and its API as a driver of the conformance suite.
require "json"
require "sidekiq"
require "sidekiq/api"

# Sidekiq logs to standard output, which is for the answers.
answers = $stdout.dup
$stdout.reopen($stderr)
answers.sync = true

# Changes or stops a routed job, as its first argument says.
class Route
  def call(_class, job, _queue, _pool)
    if job["class"] == "JobwireRouted"
      changes = job["args"].first.dup
      return false if changes.delete("stop")
      job.merge!(changes)
    end
    yield
  end
end

class Stopped < ArgumentError; end

url = ENV.fetch("JOBWIRE_REDIS_URL")
Sidekiq.configure_client do |config|
  config.redis = { url: url }
  config.client_middleware { |chain| chain.add Route }
end
Sidekiq.strict_args! if Sidekiq.respond_to?(:strict_args!)

# The value, with half of a surrogate pair in place of each text "half".
def halved(value)
  case value
  when Hash then value.to_h { |name, part| [halved(name), halved(part)] }
  when Array then value.map { |part| halved(part) }
  else value == "half" ? "a\xED\xA0\x80b" : value
  end
end

def push(request)
  job = request.fetch("job").dup
  if request.key?("in")
    delay = request["in"].to_f
    now = Time.now.to_f
    at = delay < 1_000_000_000 ? now + delay : delay
    job["at"] = at if at > now
  end
  job["at"] = request["at"] if request.key?("at")
  # A value that JSON does not have.
  if job["class"] == "JobwireNative"
    job["args"] = job["args"].map { |value| value == "native" ? Time.now : value }
  end
  job = halved(job) if job["class"] == "JobwireHalf"
  jid = Sidekiq::Client.push(job)
  raise Stopped, "stopped by middleware" unless jid

  { jid: jid.to_s.empty? ? nil : jid.to_s }
end

def push_bulk(request)
  items = request.fetch("job").merge("args" => request.fetch("args"))
  items = halved(items) if items["class"] == "JobwireHalf"
  items["at"] = request["at"] if request.key?("at")
  items[:spread_interval] = request["spread_interval"] if request.key?("spread_interval")
  { jids: Sidekiq::Client.push_bulk(items) }
end

SETS = {
  "schedule" => Sidekiq::ScheduledSet, "retry" => Sidekiq::RetrySet, "dead" => Sidekiq::DeadSet
}.freeze
SEEN = {} # entries of the last request, by place and bytes

def time(job, field)
  value = job.respond_to?(field) ? job.public_send(field) : job[field.to_s]
  value.is_a?(Time) ? value.to_f : value
end

def shown(job, place)
  SEEN[[place, job.value.b]] = job
  text = job.value.dup.force_encoding("UTF-8")
  {
    member: text.valid_encoding? ? text : { base64: [text].pack("m0") },
    jid: job.jid,
    class: job.display_class,
    created_at: time(job, :created_at),
    enqueued_at: time(job, :enqueued_at),
    failed_at: time(job, :failed_at),
    retried_at: time(job, :retried_at),
    error_backtrace: (job.error_backtrace if job.error_backtrace.is_a?(Array))
  }.merge(job.respond_to?(:score) ? { score: job.score } : {})
end

def works
  set = defined?(Sidekiq::WorkSet) ? Sidekiq::WorkSet.new : Sidekiq::Workers.new
  entries = set.map do |identity, _thread, work|
    payload = work.is_a?(Hash) ? work["payload"] : work.payload
    payload = JSON.parse(payload) if payload.is_a?(String)
    queue, run_at = work.is_a?(Hash) ? work.values_at("queue", "run_at") : [work.queue, work.run_at]
    { identity: identity, jid: payload["jid"], queue: queue, run_at: run_at.to_f }
  end
  entries.sort_by { |work| work[:run_at] }
end

def inspect_what(request)
  SEEN.clear
  name = request["name"]
  case request["what"]
  when "queues"
    queues = Sidekiq::Queue.all
    { queues: queues.to_h { |queue| [queue.name, { size: queue.size, latency: queue.latency }] } }
  when "queue" then { jobs: Sidekiq::Queue.new(name).map { |job| shown(job, name) } }
  when "set" then { jobs: SETS.fetch(name).new.sort_by(&:score).map { |job| shown(job, name) } }
  when "find"
    { jobs: [SETS.fetch(name).new.find_job(request["jid"])].compact.map { |job| shown(job, name) } }
  when "stats"
    stats = Sidekiq::Stats.new
    { processed: stats.processed, failed: stats.failed, schedule: stats.scheduled_size,
      retry: stats.retry_size, dead: stats.dead_size }
  when "processes"
    processes = Sidekiq::ProcessSet.new.map do |process|
      concurrency, busy = %w[concurrency busy].map { |name| process[name] }
      { identity: process.identity, concurrency: (concurrency if concurrency.is_a?(Integer)),
        busy: (busy if busy.is_a?(Integer)), quiet: process.stopping? }
    end
    { processes: processes.sort_by { |process| process[:identity] } }
  when "work" then { work: works }
  when "metrics"
    found = Sidekiq::Metrics::Query.new.top_jobs.job_results
    { metrics: found.transform_values { |job| %w[p f ms].to_h { |n| [n, job.totals[n]] } } }
  end
end

def act(request)
  action = request["action"]
  if request.key?("identity")
    process = Sidekiq::ProcessSet.new.find { |entry| entry.identity == request["identity"] }
    process.public_send({ "quiet" => :quiet!, "stop" => :stop!, "dump" => :dump_threads }[action])
  elsif request.key?("jid")
    Sidekiq::Client.new.cancel!(request["jid"])
  else
    act_on_jobs(request, action)
  end
  {}
end

def act_on_jobs(request, action)
  place = request["set"] || request["queue"]
  jobs = request.key?("set") ? SETS.fetch(place).new : Sidekiq::Queue.new(place)
  return jobs.clear if action == "clear"

  member = request["member"]
  bytes = member.is_a?(Hash) ? member["base64"].unpack1("m0") : member.b
  job = SEEN[[place, bytes]] || jobs.find { |entry| entry.value.b == bytes }
  SEEN.clear
  job&.public_send(action, *request.values_at("at").compact)
end

OPS = { "push" => :push, "push_bulk" => :push_bulk, "inspect" => :inspect_what, "act" => :act }.freeze

def can?(request)
  OPS.key?(request["op"]) &&
    (request["action"] != "cancel" || Sidekiq::Client.method_defined?(:cancel!))
end

$stdin.each_line do |line|
  request = JSON.parse(line, max_nesting: false)
  answer =
    begin
      if request["op"] == "hello"
        { ok: { driver: 1, version: Sidekiq::VERSION, ops: OPS.keys } }
      elsif request["op"] == "bye" then { ok: {} }
      elsif can?(request) then { ok: send(OPS.fetch(request["op"]), request) }
      else { unsupported: true }
      end
    rescue ArgumentError, JSON::JSONError => e
      { error: { kind: "rejected", message: e.message } }
    rescue StandardError => e
      { error: { kind: "unknown", message: "#{e.class}: #{e.message}" } }
    end
  answers.puts JSON.generate({ id: request["id"] }.merge(answer))
  break if request["op"] == "bye"
end
