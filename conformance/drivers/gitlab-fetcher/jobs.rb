# frozen_string_literal: true

# The standard jobs, behind GitLab's fetcher in its reliable form.
require "sidekiq-reliable-fetch"
require_relative "../ruby-sidekiq/jobs"

Sidekiq.configure_server { |config| Sidekiq::ReliableFetch.setup_reliable_fetch!(config) }
