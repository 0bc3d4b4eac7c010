# frozen_string_literal: true
#
# A Sidekiq client with sidekiq/api that stays alive, driven by JSON lines.
#
#   in    {"op": "push", "with": {"item": {...}}}
#   out   {"ok": <value>}  or  {"error": "<class>", "message": "...", "backtrace": [...]}
#
# An operation is a public method of Driver; "with" holds its keyword arguments. Payloads travel as
# base64 of the exact bytes in Redis, together with the fields that Sidekiq decoded from them.

answers = $stdout.dup
$stdout.reopen($stderr) # Sidekiq's logger writes to standard output

require "base64"
require "set"
require_relative "jobs"
require "sidekiq/api"

((GENERATION >= 7) ? Sidekiq.default_configuration.logger : Sidekiq.logger).level = Logger::WARN

class Driver
  SETS = {"retry" => Sidekiq::RetrySet, "schedule" => Sidekiq::ScheduledSet, "dead" => Sidekiq::DeadSet}.freeze
  PROCESS_FIELDS = %w[identity hostname pid started_at tag concurrency queues weights labels version
    embedded capsules busy beat quiet rss rtt_us].freeze
  STATS = %i[processed failed enqueued scheduled_size retry_size dead_size workers_size
    processes_size queues default_queue_latency].freeze

  # -- clients

  def push(item:) = Sidekiq::Client.push(item)

  def push_bulk(items:) = Sidekiq::Client.push_bulk(items)

  def perform_async(job:, args:, options: {}) = setter(job, options).perform_async(*args)

  def perform_in(job:, seconds:, args:, options: {}) = setter(job, options).perform_in(seconds, *args)

  def perform_at(job:, at:, args:, options: {}) = setter(job, options).perform_at(at, *args)

  def perform_bulk(job:, args:) = job_class(job).perform_bulk(args)

  # -- sorted sets: "retry", "schedule", "dead"

  def set_list(set:) = SETS.fetch(set).new.map { |entry| record(entry) }

  def set_size(set:) = SETS.fetch(set).new.size

  # retry_all, kill_all, clear...
  def set_call(set:, action:) = SETS.fetch(set).new.public_send(action)

  # retry, kill, delete, add_to_queue, reschedule(at)
  def entry_call(set:, jid:, action:, args: []) = entry(set, jid).public_send(action, *args)

  # -- queues

  def queues = Sidekiq::Queue.all.map(&:name)

  def queue_list(queue:) = Sidekiq::Queue.new(queue).map { |job| record(job) }

  def queue_size(queue:) = Sidekiq::Queue.new(queue).size

  def queue_latency(queue:) = Sidekiq::Queue.new(queue).latency

  def queue_clear(queue:) = Sidekiq::Queue.new(queue).clear

  def queue_delete(queue:, jid:)
    (Sidekiq::Queue.new(queue).find_job(jid) || raise(KeyError, "no job #{jid} in queue #{queue}")).delete
  end

  # -- processes and their running jobs

  def processes
    Sidekiq::ProcessSet.new.map do |process|
      PROCESS_FIELDS.to_h { |field| [field, process[field]] }.merge(
        "stopping" => process.stopping?, "api_queues" => process.queues, "api_labels" => process.labels,
        "api_tag" => process.tag
      )
    end
  end

  # quiet!, stop!, dump_threads
  def process_call(identity:, action:)
    process = Sidekiq::ProcessSet.new.find { |candidate| candidate.identity == identity }
    (process || raise(KeyError, "no process #{identity}")).public_send(action)
  end

  def works
    set = defined?(Sidekiq::WorkSet) ? Sidekiq::WorkSet : Sidekiq::Workers
    set.new.map do |identity, tid, work|
      # a hash in 6, an object since 7.2
      queue, run_at, payload = if work.is_a?(Hash)
        work.values_at("queue", "run_at", "payload")
      else
        [work.queue, work.run_at, work.payload]
      end
      payload = Sidekiq.load_json(payload) if payload.is_a?(String)
      {"identity" => identity, "tid" => tid, "queue" => queue, "run_at" => run_at.to_f, "item" => payload}
    end
  end

  # -- statistics, FLUSHDB, Ruby code

  def stats = Sidekiq::Stats.new.then { |stats| STATS.to_h { |name| [name, stats.public_send(name)] } }

  def version = Sidekiq::VERSION

  def flush = redis("FLUSHDB")

  # Any Ruby; `with` is the caller's value.
  def evaluate(code:, with: nil) = binding.eval(code)

  private

  # A class that Ruby does not have is defined here, because the client needs its name.
  def job_class(name)
    name.split("::").reduce(Object) do |scope, part|
      next scope.const_get(part, false) if scope.const_defined?(part, false)
      scope.const_set(part, Class.new { include Sidekiq::Job })
    end
  end

  def setter(name, options) = job_class(name).set(options)

  def entry(set, jid) = SETS.fetch(set).new.find_job(jid) || raise(KeyError, "no job #{jid} in #{set}")

  # A payload as the API shows it. A field that it cannot read is in "raised", with the reason.
  def record(job)
    raised = {}
    ask = lambda do |field, &block|
      block.call
    rescue => e
      raised[field] = "#{e.class}: #{e.message}"
      nil
    end
    {
      "payload" => Base64.strict_encode64(job.value), "item" => job.item, "jid" => job.jid,
      "queue" => job.queue, "score" => (job.score if job.respond_to?(:score)),
      "class" => ask.call("class") { job.klass }, "args" => ask.call("args") { job.args },
      "display_class" => ask.call("display_class") { job.display_class },
      "display_args" => ask.call("display_args") { job.display_args },
      "created_at" => ask.call("created_at") { job.created_at&.to_f },
      "enqueued_at" => ask.call("enqueued_at") { job.enqueued_at&.to_f },
      "failed_at" => ask.call("failed_at") { job.failed_at&.to_f if job.respond_to?(:failed_at) },
      "retried_at" => ask.call("retried_at") { job.retried_at&.to_f if job.respond_to?(:retried_at) },
      "at" => ask.call("at") { job.at.to_f if job.respond_to?(:at) },
      "latency" => ask.call("latency") { job.latency },
      "tags" => ask.call("tags") { job.tags },
      "error_backtrace" => ask.call("error_backtrace") { job.error_backtrace },
      "raised" => raised
    }
  end
end

# Anything as JSON. Text that is not UTF-8 is scrubbed here: its bytes are in "payload".
def plain(value)
  case value
  when nil, true, false, Integer then value
  when Float then value.finite? ? value : value.to_s
  when String then value.dup.force_encoding("UTF-8").scrub
  when Symbol then value.to_s
  when Array, Set then value.map { |element| plain(element) }
  when Hash then value.to_h { |key, element| [plain(key.to_s), plain(element)] }
  when Time then value.to_f
  else value.inspect.scrub
  end
end

driver = Driver.new
operations = Driver.public_instance_methods(false).map(&:to_s)
while (line = $stdin.gets)
  answer = begin
    request = JSON.parse(line.force_encoding("UTF-8"), max_nesting: false)
    raise ArgumentError, "no operation #{request["op"]}" unless operations.include?(request["op"])
    {"ok" => plain(driver.public_send(request["op"], **request.fetch("with", {}).transform_keys(&:to_sym)))}
  rescue StandardError, ScriptError => e
    {"error" => e.class.name, "message" => plain(e.message), "backtrace" => e.backtrace.first(10)}
  end
  answers.puts(JSON.generate(answer, max_nesting: 0))
  answers.flush
end
