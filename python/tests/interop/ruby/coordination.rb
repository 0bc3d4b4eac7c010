# frozen_string_literal: true
#
# The Ruby half of the part `ruby` of tests/chaos/coordination.py: the same jobs, with unique jobs, limits
# and batches of examples/ruby/jobwire.rb, which lies beside this file when it runs.

require_relative "jobwire"
require_relative "jobs"

Jobwire::Limit.send(:remove_const, :LEASE)
Jobwire::Limit::LEASE = Integer(ENV.fetch("LEASE"))
Jobwire::Limit.send(:remove_const, :RENEWED)
Jobwire::Limit::RENEWED = 1
PATIENT = 30 # seconds; a busy machine must not make a client repeat a command whose reply is late
LEDGER = RedisClient.config(url: ENV.fetch("LEDGER_URL"), timeout: PATIENT).new_pool(size: 9)
ENTER = ENV.fetch("ENTER")

# Shows a job its payload.
class Payload
  def call(job, payload, _)
    job.payload = payload
    yield
  end
end

Sidekiq.configure_client { |config| Jobwire.install(config) }
Sidekiq.configure_server do |config|
  config.redis = { url: ENV.fetch("REDIS_URL"), timeout: PATIENT }
  Jobwire.install(config)
  config.logger.level = Logger::WARN
  config.server_middleware { |chain| chain.add(Payload) }
end

class Noted
  include Sidekiq::Job
  attr_accessor :payload

  # Notes the begin and the end of a job; a rare one fails the first time.
  def work(what, limit: "", most: 0, key: "", rare: false)
    me = "#{Process.pid} #{jid} #{Process.clock_gettime(Process::CLOCK_MONOTONIC)}"
    LEDGER.call("EVAL", ENTER, 2, "inside:#{limit}", "keys", limit, most, key, me)
    sleep 0.01
    raise ShoutError, what.to_s if is_a?(Dying) || (rare && !payload["retry_count"])
    LEDGER.call("RPUSH", "ended", "#{what} #{Process.pid}")
  ensure
    LEDGER.call("SREM", "inside:#{limit}", me)
    LEDGER.call("HDEL", "keys", key) unless key.empty?
  end
end

class Slotted < Noted
  sidekiq_retry_in { 1 }
  def perform(number, pair) = work(number, limit: "slots", most: 4, key: "pair-#{pair}", rare: number % 20 == 3)
end

class Windowed < Noted
  sidekiq_retry_in { 1 }
  def perform(number)
    redis("ZRANGE", "jobwire:limit:window:starts", 0, -1).each do |entry|
      _, start, of = entry.split(":")
      LEDGER.call("SADD", "starts", start) if of == jid && !start.empty?
    end
    work(number, rare: number % 20 == 4)
  end
end

class Dying < Noted
  def perform(number) = work(number, limit: "slots", most: 4)
end

class Sole < Noted
  sidekiq_retry_in { 1 }
  def perform(key, number) = work("sole", key: key, rare: number % 40 == 4)
end

class Ended < Noted
  def perform(batch, event) = LEDGER.call("RPUSH", "callbacks", "#{batch} #{event} #{Process.pid}")
end
