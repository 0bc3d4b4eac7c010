# frozen_string_literal: true
#
# The jobs of test_differential.py in Ruby; differential_app.py has the same ones in Python.
#
# Fields of the payload say what a job does: "script" has a step for each execution, the last one
# for all later ones; null succeeds. Every job, hook and handler reports its call in app:calls.

require "base64"
require_relative "jobs"

module Trouble
  class Deep < StandardError; end

  class Mute < StandardError
    def message = raise("no words")
  end
end

def told(what, item, **more)
  call = {"what" => what, "n" => item["n"]}.merge(more)
  redis("RPUSH", "app:calls", JSON.generate(call, max_nesting: 0))
rescue JSON::GeneratorError, EncodingError
  redis("RPUSH", "app:calls", JSON.generate({"what" => what, "n" => item["n"], "untold" => true}))
end

def said(error)
  {"class" => error.class.name, "message" => error.message.dup.force_encoding("UTF-8").scrub[0, 10_000]}
rescue => e
  {"class" => error.class.name, "message" => e.message}
end

# A hook's result: the answer that the payload asks for.
def answer(wish)
  case wish
  when ":discard" then :discard
  when ":kill" then :kill
  when ":infinity" then Float::INFINITY
  when Hash then raise(wish["raise"].to_s)
  else wish
  end
end

# The outermost middleware.
class Telling
  def call(_job, item, _queue)
    Thread.current[:item] = item
    told("began", item)
    raise Trouble::Deep, "stumbled" if item["stumble"] == "before"
    item["spoiled"] = item["tags"] = "by middleware" if item["stumble"] == "spoils"
    yield
    raise Trouble::Deep, "stumbled" if item["stumble"] == "after"
  end
end

Sidekiq.configure_server do |config|
  config.server_middleware { |chain| chain.prepend(Telling) }
  config.error_handlers << lambda do |error, context, *|
    job = context[:job]
    # Only errors of jobs, not of hooks and handlers.
    own = ["Job raised exception", "Internal exception!"].include?(context[:context])
    told("error", job, error: said(error)) if own && job.is_a?(Hash)
  end
  config.death_handlers << ->(job, error) { told("death", job, job: job, error: said(error)) }
end

module Fate
  class Plain
    include Sidekiq::Job

    def perform(*args) = act(args)

    private

    def act(args)
      item = Thread.current[:item]
      attempt = redis("INCR", "app:attempts:#{item["n"]}")
      script = item["script"] || [nil]
      step = script[[attempt, script.size].min - 1]
      return told("ran", item, args: args) unless step
      args.each { |arg| arg << "spoiled" if arg.is_a?(Array) } if step["spoil"]
      message = step["message"] || Base64.decode64(step["bytes"]).force_encoding("UTF-8")
      raise Object.const_get(step["raise"]), message
    end
  end

  class Dropped < Plain
    sidekiq_options retry: false
  end

  class Buried < Plain
    sidekiq_options retry: 0
  end

  class Once < Plain
    sidekiq_options retry: 1, dead: false, backtrace: 2, retry_queue: "low", tags: ["own"]
  end

  class Two < Plain
    def perform(one, two) = act([one, two])
  end

  class Hooked < Plain
    sidekiq_retry_in do |count, error, *|
      item = Thread.current[:item]
      told("retry_in", item, count: count, error: said(error))
      answer(item["hook"])
    end
    sidekiq_retries_exhausted do |job, error|
      told("exhausted", job, job: job, error: said(error))
      answer(job["last"])
    end
  end

  class Sentinel
    include Sidekiq::Job
    def perform = redis("RPUSH", "app:done", "done")
  end
end
