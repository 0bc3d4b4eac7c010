# frozen_string_literal: true
#
# Unique jobs for Sidekiq 6.4 to 8, which share their locks with jobwire and with every other
# implementation of spec/unique.md. Copy this file into a Rails application, for example to lib/, and
# load it where Sidekiq is configured:
#
#   Sidekiq.configure_client { |config| Jobwire.install(config) }
#   Sidekiq.configure_server { |config| Jobwire.install(config) }
#
# A job class then says what is unique about it:
#
#   class SyncJob
#     include Sidekiq::Job
#     sidekiq_options jw_unique: {seconds: 3600}
#
#   seconds    bound of the lock
#   scope      until_done (default), until_start, while_running, for_time
#   by         positions of the arguments in the key, or a Proc that gets the arguments
#   duplicate  raise (default): Jobwire::DuplicateJob; drop: perform_async returns nil
#
# The push takes the lock and writes the job in one step; perform_async returns the id, perform_bulk
# nil for each unique job. Sidekiq acknowledges a job before it runs, so its end releases the lock in
# a second step: a crash leaves the lock to its bound, and so does a deletion on Sidekiq's page.

require "digest"
require "json"
require "sidekiq"

module Jobwire
  FIELD = "jw_unique"
  PUT_OFF = 5.0 # seconds on average, of a job that waits for another with its key

  class DuplicateJob < StandardError
    attr_reader :jid # id of the job that has the lock

    def initialize(job, jid)
      @jid = jid
      super("#{job["class"]}: job #{jid} has the same unique key; wait for its end, or use its id")
    end
  end

  # The text of X-UNIQ-1.
  module Key
    SHORT = {"\b" => "\\b", "\f" => "\\f", "\n" => "\\n", "\r" => "\\r", "\t" => "\\t",
             '"' => '\\"', "\\" => "\\\\"}.freeze

    def self.digest(class_name, queue, value) = Digest::SHA256.hexdigest(text([class_name, queue, value]))

    def self.text(value)
      case value
      when Hash
        members = value.transform_keys(&:to_s).sort_by { |name, _| name.b }
        "{#{members.map { |name, one| "#{string(name)}:#{text(one)}" }.join(",")}}"
      when Array then "[#{value.map { |one| text(one) }.join(",")}]"
      when Float then float(value)
      when Integer, true, false then value.to_s
      when nil then "null"
      else string(value.to_s)
      end
    end

    def self.string(value)
      %("#{value.encode("UTF-8").gsub(/["\\\x00-\x1f]/) { |c| SHORT[c] || format("\\u%04x", c.ord) }}")
    end

    def self.float(value)
      raise ArgumentError, "#{value} is no number of JSON" unless value.finite?
      mantissa, exponent = value.abs.to_s.split("e") # the shortest digits, such as 1.5 and 1.0e-07
      whole, part = mantissa.split(".")
      part = "" if part == "0"
      digits = (whole + part).sub(/\A0+(?=.)/, "")
      point = (digits == "0") ? 1 : exponent.to_i + whole.length - ((whole + part).length - digits.length)
      sign = (value.negative? || 1 / value < 0) ? "-" : ""
      if point.between?(-4, 16)
        digits = ("0" * [1 - point, 0].max) + digits.ljust(point, "0")
        whole = [point, 1].max
        return "#{sign}#{digits[0, whole]}.#{digits[whole..].then { |rest| rest.empty? ? "0" : rest }}"
      end
      rest = digits[1..]
      "#{sign}#{digits[0]}#{"." unless rest.empty?}#{rest}e#{point - 1}"
    end
  end

  # KEYS: lock, place, queues. ARGV: id, PX or PXAT, milliseconds, payload, queue (empty: it is
  # scheduled, or only locked), score (empty: not scheduled). Returns the id of another holder, or "".
  LOCK = <<~LUA
    local holder = redis.call("GET", KEYS[1])
    if holder and holder ~= ARGV[1] then return holder end
    if not holder and ARGV[5] ~= "" then
      redis.call("SADD", KEYS[3], ARGV[5])
      redis.call("LPUSH", KEYS[2], ARGV[4])
    elseif not holder and ARGV[6] ~= "" then
      redis.call("ZADD", KEYS[2], ARGV[6], ARGV[4])
    end
    redis.call("SET", KEYS[1], ARGV[1], ARGV[2], ARGV[3])
    return ""
  LUA
  # KEYS: lock. ARGV: id.
  UNLOCK = 'if redis.call("GET", KEYS[1]) == ARGV[1] then return redis.call("DEL", KEYS[1]) end return 0'

  class << self
    def install(config)
      config.client_middleware { |chain| chain.add(ClientMiddleware) }
      return unless config.respond_to?(:server_middleware)
      config.server_middleware { |chain| chain.add(ServerMiddleware) }
      config.death_handlers << ->(job, _error) { release(job, "until_done") }
    end

    # The fields of the lock that a payload describes, or nil.
    def lock(job)
      lock = job[FIELD]
      lock if lock.is_a?(Hash) && /\A[0-9a-f]{64}\z/.match?(lock["digest"].to_s)
    end

    def release(job, scope)
      lock = lock(job)
      return unless lock && lock["scope"] == scope
      redis("EVAL", UNLOCK, 1, "jobwire:unique:#{lock["digest"]}", job["jid"])
    end

    # Takes the lock; returns the id of another job that has it, or "".
    def take(job, place: "", text: "", queue: "", score: "")
      lock = lock(job)
      seconds = lock["seconds"]
      bound = (score == "") ? ["PX", (seconds * 1000).ceil] : ["PXAT", ((score + seconds) * 1000).ceil]
      keys = ["jobwire:unique:#{lock["digest"]}", place, "queues"]
      redis("EVAL", LOCK, 3, *keys, job["jid"], *bound, text, queue, score)
    end

    def redis(*command) = Sidekiq.redis { |connection| connection.call(*command) }

    def now = (Sidekiq::VERSION.to_i >= 8) ? (Time.now.to_f * 1000).to_i : Time.now.to_f
  end

  class ClientMiddleware
    def call(_class, job, queue, _pool)
      wish = job[FIELD]
      # A job that comes back from retry or schedule has its lock already.
      return yield if !wish.is_a?(Hash) || Jobwire.lock(job)
      wish = wish.transform_keys(&:to_s)
      scope = wish.fetch("scope", "until_done").to_s
      by = wish["by"]
      value = by.respond_to?(:call) ? by.call(*job["args"]) : by&.map { |at| job["args"][at] } || job["args"]
      digest = Key.digest(job["class"].to_s, queue, value)
      job[FIELD] = {"digest" => digest, "scope" => scope, "seconds" => wish.fetch("seconds")}
      return yield if scope == "while_running"
      holder = push(job, queue)
      raise DuplicateJob.new(job, holder) if holder != "" && wish.fetch("duplicate", "raise").to_s == "raise"
      Thread.current[:jobwire_pushed] = job["jid"] if holder == ""
      nil # it is written: Sidekiq must not write it again
    end

    private

    def push(job, queue)
      if (at = job["at"])
        return Jobwire.take(job, place: "schedule", text: JSON.generate(job.except("at")), score: at)
      end
      text = JSON.generate(job.merge("enqueued_at" => Jobwire.now))
      Jobwire.take(job, place: "queue:#{queue}", text: text, queue: queue)
    end
  end

  class ServerMiddleware
    def call(_instance, job, queue)
      scope = Jobwire.lock(job)&.fetch("scope", nil)
      Jobwire.release(job, scope) if scope == "until_start"
      return put_off(job, queue) if scope == "while_running" && Jobwire.take(job) != ""
      begin
        result = yield
      rescue => error
        Jobwire.release(job, scope) if scope == "while_running" || job["retry"] == false
        raise error
      end
      Jobwire.release(job, scope) if %w[until_done while_running].include?(scope)
      result
    end

    private

    # Without counting it as a failure. [X-UNIQ-9] [X-TIME-4]
    def put_off(job, queue)
      job = job.merge("queue" => queue, "jw_snoozes" => job.fetch("jw_snoozes", 0) + 1).except("enqueued_at")
      at = Time.now.to_f + PUT_OFF * (0.5 + rand)
      Jobwire.redis("ZADD", "schedule", at.to_s, JSON.generate(job))
    end
  end

  # Sidekiq returns nil for a job that middleware has kept from its own push.
  module Answer
    def push(item)
      Thread.current[:jobwire_pushed] = nil
      super || Thread.current[:jobwire_pushed]
    end
  end
  Sidekiq::Client.prepend(Answer)
end
