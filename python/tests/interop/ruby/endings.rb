# frozen_string_literal: true
#
# Jobs with unusual ends, for test_sidekiq_endings.py. Loaded after jobs.rb.

require_relative "jobs"

# Its exhausted hook answers with "discard".
class WorthlessJob
  include Sidekiq::Job
  sidekiq_options retry: 0
  sidekiq_retries_exhausted do |job, _error|
    hooked("exhausted", job["jid"])
    :discard
  end
  def perform = raise("original")
end

# Pushes with times that are not times; reports what became of each.
class TimesJob
  include Sidekiq::Job
  def perform
    {"nil" => nil, "NaN" => Float::NAN, "-5" => -5, "-10**10" => -10**10, "text" => "soon"}.each do |name, time|
      EchoJob.perform_in(time, name)
      redis("RPUSH", "app:times", "#{name} ok")
    rescue => e
      redis("RPUSH", "app:times", "#{name} #{e.class}")
    end
    redis("RPUSH", "app:times", "end")
  end
end

# Client middleware of the process: reports each push that it sees.
class Reporting
  def call(_job_class, payload, _queue, _redis)
    redis("RPUSH", "app:pushed", payload["jid"])
    yield
  end
end

Sidekiq.configure_server { |config| config.client_middleware { |chain| chain.add(Reporting) } }
