# frozen_string_literal: true

# The standard jobs of the conformance suite for a real Sidekiq.
require "json"
require "socket"
require "uri"

# A minimal client of the control Redis, because each generation of Sidekiq has another client.
module Control
  URL = URI(ENV.fetch("JOBWIRE_CONTROL_URL"))

  def self.call(*words)
    socket = Thread.current[:control] ||= TCPSocket.new(URL.host, URL.port)
    socket.write("*#{words.size}\r\n" + words.map { |w| "$#{w.bytesize}\r\n#{w}\r\n" }.join)
    read(socket)
  end

  def self.read(socket)
    line = socket.gets
    case line[0]
    when "*" then Array.new([line[1..].to_i, 0].max) { read(socket) }
    when "$" then line[1..].to_i.negative? ? nil : socket.read(line[1..].to_i + 2)
    else line[1..].to_i
    end
  end

  def self.key(name)
    "jw:#{ENV.fetch("JOBWIRE_RUN")}:#{name}"
  end

  def self.report(kind, jid, **members)
    call("RPUSH", key("ev"), JSON.generate({ ev: kind, jid: jid }.merge(members)))
  end
end

Sidekiq.configure_server do |config|
  config.redis = { url: ENV.fetch("JOBWIRE_REDIS_URL") }
  poll = ENV.fetch("JOBWIRE_POLL", 5).to_f # 5 is Sidekiq's own
  if config.respond_to?(:average_scheduled_poll_interval=)
    config.average_scheduled_poll_interval = poll
  else
    config[:average_scheduled_poll_interval] = poll
  end
  if (beside = ENV["JOBWIRE_BESIDE"]) # since 7.0.0
    config.capsule("beside") do |capsule|
      capsule.concurrency = ENV.fetch("JOBWIRE_CONCURRENCY").to_i
      capsule.queues = beside.split(",")
    end
  end
end

class JobwireError < StandardError; end

class JobwireEcho
  include Sidekiq::Worker
  def perform(*args)
    Control.report("begin", jid, args: args)
    Control.report("end", jid, ok: true)
  end
end

class JobwireFail
  include Sidekiq::Worker
  def perform(message)
    Control.report("begin", jid, args: [message])
    Control.report("end", jid, ok: false)
    raise JobwireError, message
  end
end

class JobwireFlaky
  include Sidekiq::Worker
  def perform(times)
    Control.report("begin", jid, args: [times])
    ok = Control.call("INCR", Control.key("n:#{jid}")) > times
    Control.report("end", jid, ok: ok)
    raise JobwireError, "not yet" unless ok
  end
end

class JobwireGate
  include Sidekiq::Worker
  def perform(name)
    Control.report("begin", jid, args: [name])
    Control.call("BLPOP", Control.key("gate:#{name}"), "0")
    Control.report("end", jid, ok: true)
  end
end

if Sidekiq.const_defined?(:IterableJob) # since 7.3.0
  class JobwireIterate
    include Sidekiq::IterableJob
    def build_enumerator(count, _gate, _seconds, _wrong = nil, cursor:)
      array_enumerator((0...count).to_a, cursor: cursor)
    end

    def each_iteration(item, _count, gate, seconds, wrong = nil)
      Control.report("begin", jid, args: [item])
      Control.call("BLPOP", Control.key("gate:#{gate}"), seconds.to_s)
      Control.report("end", jid, ok: item != wrong)
      raise JobwireError, "item #{item}" if item == wrong
    end
  end
end

ENV["REDIS_URL"] = ENV.fetch("JOBWIRE_REDIS_URL") # for marks, which use another connection

class JobwireMark
  include Sidekiq::Worker
  def perform(label)
    Control.report("begin", jid, args: [label])
    require "sidekiq/deploy" # since 7.0
    Sidekiq::Deploy.mark!(label)
    Control.report("end", jid, ok: true)
  end
end

class JobwireSpawn
  include Sidekiq::Worker
  def perform(job)
    Control.report("begin", jid, args: [job])
    Sidekiq::Client.push(job)
    Control.report("end", jid, ok: true)
  end
end

class JobwireSpoil
  include Sidekiq::Worker
  def perform(values)
    Control.report("begin", jid, args: [values])
    values.clear
    Control.report("end", jid, ok: false)
    raise JobwireError, "spoilt"
  end
end

class JobwireMessage
  include Sidekiq::Worker
  def perform(kind)
    Control.report("begin", jid, args: [kind])
    Control.report("end", jid, ok: false)
    raise JobwireError, kind == "broken" ? "a\xffb" : "" # an error of Ruby always has a message
  end
end

class JobwireDelay
  include Sidekiq::Worker
  # Only some releases pass the job to the hook, but all pass the error.
  sidekiq_retry_in do |_count, error|
    case decision = JSON.parse(error.message).first
    when "raise" then raise "a broken hook"
    when String then decision.to_sym
    else decision
    end
  end

  def perform(decision)
    Control.report("begin", jid, args: [decision])
    Control.report("end", jid, ok: false)
    raise JobwireError, JSON.generate([decision])
  end
end

class JobwireLast
  include Sidekiq::Worker
  sidekiq_retries_exhausted do |job, _error|
    Control.report("exhausted", job["jid"])
    raise "a broken hook"
  end

  def perform(message)
    Control.report("begin", jid, args: [message])
    Control.report("end", jid, ok: false)
    raise JobwireError, message
  end
end

# Skips a job whose only argument is "skip".
class Skip
  def call(_job, payload, _queue)
    yield unless payload["args"] == ["skip"]
  end
end

Sidekiq.configure_server do |config|
  config.server_middleware { |chain| chain.add Skip }
  config.death_handlers << lambda do |job, _error|
    Control.report("death", job["jid"])
    raise "a broken handler"
  end
  config.death_handlers << ->(job, _error) { Control.report("death", job["jid"]) }
end
