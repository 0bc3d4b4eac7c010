# frozen_string_literal: true
#
# jobs.rb with sidekiq-cron, for workers and for driver.rb. CRON_POLL is the average time between two looks
# of its poller, in seconds.

require_relative "jobs"
require "sidekiq-cron"

Sidekiq::Options[:cron_poll_interval] = Integer(ENV["CRON_POLL"]) if ENV["CRON_POLL"]

Cron = Sidekiq::Cron::Job
