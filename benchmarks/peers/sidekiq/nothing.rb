# frozen_string_literal: true

require "logger"
require "sidekiq"

Sidekiq.configure_server { |config| config.logger.level = Logger::WARN }

class Nothing
  include Sidekiq::Job
  def perform(number) = nil
end
