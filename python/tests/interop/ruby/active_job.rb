# A job of Active Job, and the classes that its arguments name. Loaded by the worker and by driver.rb.

require "./jobs"
require "active_support/all"
require "active_job"
require "globalid"
require "bigdecimal"

if GENERATION >= 8 # what Sidekiq does in a Rails application
  require File.join(Gem.loaded_specs.fetch("sidekiq").full_gem_path, "lib/active_job/queue_adapters/sidekiq_adapter")
else
  ActiveSupport.on_load(:active_job) { include Sidekiq::Worker::Options unless respond_to?(:sidekiq_options) }
end

ActiveJob::Base.queue_adapter = :sidekiq
ActiveJob::Base.logger = Logger.new(IO::NULL)
GlobalID.app = "shop"
Time.zone = "UTC"

class Record
  include GlobalID::Identification
  attr_reader :id
  def initialize(id) = @id = id
  def self.find(id) = new(id)
  def inspect = "#<#{self.class} #{id}>"
end

module Shop
  class Order < Record; end
end

class ShapeJob < ActiveJob::Base
  ruby2_keywords def perform(*args)
    raise args[1] if args[0] == :raise
    finished(provider_job_id, [args.inspect, queue_name, executions])
  end
end
