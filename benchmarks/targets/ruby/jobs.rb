# frozen_string_literal: true

# What real Sidekiq runs; ../jobs.py is its twin.
require "logger"
require "sidekiq"

Sidekiq.configure_server do |config|
  config.logger.level = Logger::WARN unless ENV["BENCH_LOG"] == "info"
  config[:average_scheduled_poll_interval] = 1
end

MARKS = File.open(ENV.fetch("BENCH_MARKS"), "a").tap { |file| file.sync = true } if ENV["BENCH_MARKS"]

class Nothing
  include Sidekiq::Job
  def perform(number) = nil
end

class Failing
  include Sidekiq::Job
  def perform(number) = raise(ArgumentError, number.to_s)
end

class Waiting
  include Sidekiq::Job

  def perform(number)
    sleep 0.01
    MARKS.syswrite("#{number}\n")
  end
end

class Lone
  include Sidekiq::Job

  def perform(sent)
    MARKS.syswrite("#{Process.clock_gettime(Process::CLOCK_REALTIME) - sent}\n")
  end
end
