# frozen_string_literal: true
#
# jobs.rb with unique jobs, limits and batches of examples/ruby/jobwire.rb, which lies beside this file
# when it runs.

require_relative "jobwire"
require_relative "jobs"

Sidekiq.configure_client { |config| Jobwire.install(config) }
Sidekiq.configure_server { |config| Jobwire.install(config) }

{EchoJob => {}, GateJob => {scope: "while_running", by: []}, FlakyJob => {scope: :until_start, duplicate: "drop"},
 FailToDeadJob => {by: [0]}, FailWithoutRetryJob => {by: [0]}, SleepJob => {scope: "for_time"}}.each do |job, wish|
  job.sidekiq_options(jw_unique: {seconds: 3600, **wish})
end

# Notes its start by the clock of Redis, and how many of its kind are inside at the same time.
class SlotJob
  include Sidekiq::Job
  sidekiq_options jw_limit: {name: "api", at_once: 2}

  def perform(number, *)
    redis("EVAL", ENTER, 3, "app:inside", "app:most", "app:starts")
    sleep 0.01
    redis("DECR", "app:inside")
    finished(jid, [number])
  end

  ENTER = <<~LUA
    local inside, time = redis.call("INCR", KEYS[1]), redis.call("TIME")
    redis.call("SET", KEYS[2], math.max(inside, tonumber(redis.call("GET", KEYS[2]) or 0)))
    redis.call("RPUSH", KEYS[3], time[1] * 1000000 + time[2])
  LUA
end

class RateJob < SlotJob
  sidekiq_options jw_limit: {name: "rows", rate: 5, burst: 2}
end

class WindowJob < SlotJob
  sidekiq_options jw_limit: {name: "bank", window: 2, per: 1, cost: ->(_, cost = 1) { cost }}
end

class KeyedJob < SlotJob
  sidekiq_options jw_limit: {name: "keyed", at_once: 3, by: [0], cost: 2}
end

class MemberJob
  include Sidekiq::Job

  def perform(what)
    Jobwire::Batch.current.jobs { MemberJob.perform_async("added") } if what == "adds"
    raise ShoutError, what if what == "fails"
    finished(jid, [what])
  end
end

class DyingMemberJob < MemberJob
  sidekiq_options retry: 0
end
