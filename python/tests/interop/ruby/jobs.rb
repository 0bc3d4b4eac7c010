# frozen_string_literal: true
#
# Job classes for a real Sidekiq 6.4, 7.3 or 8.1: one file for all three generations, loaded by the
# worker (sidekiq -r ./jobs.rb) and by driver.rb.
#
# Every job reports through Redis, in keys that begin with "app:", never through its output:
#   app:results         list, RPUSH: one JSON object {"jid", "args"} per job that ran to its end
#   app:started         list, RPUSH: the jid of a job that has begun (SleepJob, GateJob)
#   app:gate:<name>     list: one element lets one GateJob of that name continue
#   app:attempts:<jid>  counter of FlakyJob

require "json"
require "sidekiq"

GENERATION = Sidekiq::VERSION.to_i

Sidekiq.configure_server do |config|
  options = (GENERATION >= 7) ? config : Sidekiq.options
  {poll_interval_average: "POLL", dead_max_jobs: "DEAD_MAX", dead_timeout_in_seconds: "DEAD_TIMEOUT",
   max_retries: "MAX_RETRIES", max_iteration_runtime: "MAX_ITERATION_RUNTIME"}.each do |option, variable|
    options[option] = Float(ENV[variable]).then { |n| (n % 1 == 0) ? n.to_i : n } if ENV[variable]
  end
end

# One command, in the form that the Redis clients of all three generations understand.
def redis(*command) = Sidekiq.redis { |connection| connection.call(*command) }

def finished(jid, args) = redis("RPUSH", "app:results", JSON.generate({"jid" => jid, "args" => args}))

def started(jid) = redis("RPUSH", "app:started", jid)

class EchoJob
  include Sidekiq::Job
  def perform(*args) = finished(jid, args)
end

module Reports
  module Nightly
    class NestedJob
      include Sidekiq::Job
      def perform(*args) = finished(jid, args)
    end
  end
end

class ShoutError < StandardError; end

# Always fails, with this message and class of error.
class FailJob
  include Sidekiq::Job
  def perform(message = "boom", error = "RuntimeError", *) = raise(Object.const_get(error), message)
end

# Always fails; its classes differ in their options.
class FailWithoutRetryJob < FailJob
  sidekiq_options retry: false
end

class FailToDeadJob < FailJob
  sidekiq_options retry: 0
end

class FailOnceMoreJob < FailJob
  sidekiq_options retry: 1
end

class FailForgottenJob < FailJob
  sidekiq_options retry: 0, dead: false
end

class FailWithBacktraceJob < FailJob
  sidekiq_options backtrace: true
end

class FailElsewhereJob < FailJob
  sidekiq_options queue: "critical", retry_queue: "low", tags: ["alpha", "βeta"], retry: 7
end

# Fails the first `failures` times, then echoes all its arguments.
class FlakyJob
  include Sidekiq::Job
  def perform(failures, *rest)
    attempt = redis("INCR", "app:attempts:#{jid}")
    raise "attempt #{attempt} of #{failures} failed" if attempt <= failures
    finished(jid, [failures, *rest])
  end
end

class SleepJob
  include Sidekiq::Job
  def perform(seconds, *rest)
    started(jid)
    sleep seconds
    finished(jid, [seconds, *rest])
  end
end

# Waits for its gate by polling, because a blocking read would need a longer read timeout than
# that of Sidekiq's pool of connections.
class GateJob
  include Sidekiq::Job
  def perform(gate, *rest)
    started(jid)
    sleep 0.02 until redis("LPOP", "app:gate:#{gate}")
    finished(jid, [gate, *rest])
  end
end

class OptionsJob
  include Sidekiq::Job
  sidekiq_options queue: "critical", retry: 5, backtrace: 10, tags: ["t1", "t2"], dead: false,
    retry_queue: "low", custom_string: "v", custom_number: 7, custom_null: nil, custom_hash: {"a" => [1, 2]}
  def perform(*args) = finished(jid, args)
end

# Enqueues another job while it runs: the class by name, which need not exist in Ruby.
class ParentJob
  include Sidekiq::Job
  def perform(child, args, options = {})
    child_jid = Sidekiq::Client.push(options.merge("class" => child, "args" => args))
    finished(jid, [child_jid])
  end
end

# Calls of the hooks of a failing job, in order: app:hooks, a list of "<hook> <jid> <size of dead>".
def hooked(name, jid) = redis("RPUSH", "app:hooks", "#{name} #{jid} #{redis("ZCARD", "dead")}")

Sidekiq.configure_server do |config|
  config.death_handlers << ->(job, _error) { hooked("death", job["jid"]) }
  config.death_handlers << ->(_job, _error) { raise "a death handler broke" }
  config.death_handlers << ->(job, _error) { hooked("second-death", job["jid"]) }
end

# Fails; the message is the class's answer to the question for a delay.
class RetryInJob
  include Sidekiq::Job
  ANSWERS = {"hundred" => 100, "zero" => 0, "negative" => -5, "nil" => nil, "discard" => :discard, "kill" => :kill}.freeze
  sidekiq_retries_exhausted { |job, _error| hooked("exhausted", job["jid"]) }
  sidekiq_retry_in do |_count, error, *|
    raise "the hook broke" if error.message == "raises"
    ANSWERS.fetch(error.message)
  end
  def perform(message) = raise(message)
end

# One item every `pause` seconds; app:items:<jid> is the list of items that have begun.
if defined?(Sidekiq::IterableJob)
  class IterJob
    include Sidekiq::IterableJob
    def build_enumerator(count, _pause, cursor:) = array_enumerator((0...count).to_a, cursor: cursor)

    def each_iteration(item, _count, pause)
      redis("RPUSH", "app:items:#{jid}", item)
      sleep pause
    end

    def on_complete = finished(jid, [])
  end
end

# Skips a job with the field "skip": does not call the next element.
class Skipping
  def call(_job, payload, _queue) = (yield unless payload["skip"])
end

Sidekiq.configure_server { |config| config.server_middleware { |chain| chain.add(Skipping) } }
