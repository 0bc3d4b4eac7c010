# frozen_string_literal: true
#
# jobs.rb with the unique jobs of examples/ruby/jobwire.rb, which lies beside this file when it runs.

require_relative "jobwire"
require_relative "jobs"

Sidekiq.configure_client { |config| Jobwire.install(config) }
Sidekiq.configure_server { |config| Jobwire.install(config) }

{EchoJob => {}, GateJob => {scope: "while_running", by: []}, FlakyJob => {scope: :until_start, duplicate: "drop"},
 FailToDeadJob => {by: [0]}, FailWithoutRetryJob => {by: [0]}, SleepJob => {scope: "for_time"}}.each do |job, wish|
  job.sidekiq_options(jw_unique: {seconds: 3600, **wish})
end
