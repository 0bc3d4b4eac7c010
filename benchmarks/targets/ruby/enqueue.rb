# frozen_string_literal: true

# enqueue.rb one|bulk JOBS: push so many jobs; print the seconds that it took.
require "logger"
require "sidekiq"
require_relative "jobs"

Sidekiq.configure_client { |config| config.logger.level = Logger::WARN }

how, jobs = ARGV[0], Integer(ARGV[1])
Nothing.perform_async(0) # connects
started = Process.clock_gettime(Process::CLOCK_MONOTONIC)
case how
when "one" then jobs.times { |number| Nothing.perform_async(number) }
when "bulk" then Nothing.perform_bulk((0...jobs).map { |number| [number] }, batch_size: 1_000)
else abort "one or bulk?"
end
puts Process.clock_gettime(Process::CLOCK_MONOTONIC) - started
