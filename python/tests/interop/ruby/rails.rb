# frozen_string_literal: true
#
# The Ruby half of an application in two languages, for tests/chaos/mixed.py; ledger_app.py is the other
# one. It has Active Job, the unique jobs of examples/ruby/jobwire.rb, which lies beside this file when
# it runs, and sidekiq-cron where that is installed. Release 2 has a class that release 1 lacks.

begin
  require "./cron"
rescue LoadError
  # only one generation has sidekiq-cron
end
require "./active_job"
require "./jobwire"

RELEASE = Integer(ENV.fetch("RELEASE", "2"))
LEDGER = (GENERATION >= 7) ? RedisClient.config(url: ENV["LEDGER_URL"]).new_pool(size: 9) : Redis.new(url: ENV["LEDGER_URL"])

def write(list, row) = LEDGER.call("RPUSH", list, JSON.generate(row))

def note(what)
  job = Thread.current[:job]
  write("rows", [what, job["jid"], "ruby", Process.pid, RELEASE, job["error_message"], true])
end

# Notes the begin of a job.
class Begin
  def call(_, job, _)
    Thread.current[:job] = job
    note("begun") unless job["wrapped"] == "TickJob"
    yield
  end
end

Sidekiq.configure_client { |config| Jobwire.install(config) }
Sidekiq.configure_server do |config|
  Jobwire.install(config)
  config.server_middleware { |chain| chain.prepend(Begin) }
end

# Takes a moment, in which the process may be killed; every tenth job takes a longer one.
def work(number)
  sleep((number % 10).zero? ? 0.3 : 0.01)
  note("ended")
end

class RubyJob
  include Sidekiq::Job
  def perform(*args) = work(args.last)
end

class BothJob < RubyJob; end

class NewRubyJob < RubyJob; end unless RELEASE == 1

class UniqueJob < RubyJob
  sidekiq_options jw_unique: {seconds: 3600, by: [0]}
end

# Fails the first time.
class RareJob < RubyJob
  sidekiq_retry_in { 1 }
  def perform(number)
    raise ShoutError, number.to_s unless Thread.current[:job]["retry_count"]
    super
  end
end

# Checks the values of Python.
class WelcomeJob < ActiveJob::Base
  def perform(user, number, locale:)
    raise ShoutError, [user, locale].inspect unless user.is_a?(Shop::Order) && user.id == "7" && locale == :de
    work(number)
  end
end

class TickJob < ActiveJob::Base
  def perform(*args) = write("ledger", [provider_job_id, *args])
end

# Pushes jobs, each [class, queue, arguments, seconds to wait or nil]; returns the ids, nil for a duplicate.
def push_all(jobs)
  jobs.map do |name, queue, args, wait|
    if name == "WelcomeJob"
      options = {queue: queue, wait: wait}.compact
      next WelcomeJob.set(**options).perform_later(Shop::Order.new("7"), *args, locale: :de).provider_job_id
    end
    job = (name == "UniqueJob") ? UniqueJob : name
    Sidekiq::Client.push({"class" => job, "queue" => queue, "args" => args, "at" => wait && Time.now.to_f + wait}.compact)
  rescue Jobwire::DuplicateJob
    nil
  end
end
