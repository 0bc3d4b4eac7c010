# frozen_string_literal: true
#
# Unique jobs, limits and batches for Sidekiq 6.4 to 8, which share their keys with jobwire and with
# every other implementation of spec/unique.md, spec/limits.md and spec/batches.md. Copy this file into
# a Rails application, for example to lib/; for limits and batches also the files of lua/ of the
# specification, to a directory lua beside it. Load it where Sidekiq is configured:
#
#   Sidekiq.configure_client { |config| Jobwire.install(config) }
#   Sidekiq.configure_server { |config| Jobwire.install(config) }
#
# A job class then says what is unique about it, and its limit:
#
#   class SyncJob
#     include Sidekiq::Job
#     sidekiq_options jw_unique: {seconds: 3600}, jw_limit: {name: "api", at_once: 5, by: [0]}
#
#   seconds    bound of the lock
#   scope      until_done (default), until_start, while_running, for_time
#   by         positions of the arguments in the key, or a Proc that gets the arguments
#   duplicate  raise (default): Jobwire::DuplicateJob; drop: perform_async returns nil
#
#   name       of the limit, which all jobs with this name and key share
#   at_once    so many may run at the same time; or instead
#   rate, per, burst    so many may start in `per` seconds, so many together after a quiet time
#   window, per         so many may start in any `per` seconds
#   cost       number of jobs that one counts as, or a Proc that gets the arguments
#
# Jobs that are enqueued in the block of a batch are its members; each callback is one job:
#
#   batch = Jobwire::Batch.open(on_success: [PublishJob, 7], on_death: [AlertJob]) do
#     100.times { |picture| ResizeJob.perform_async(picture) }
#   end
#   batch.cancel
#   Jobwire::Batch.current&.jobs { ResizeJob.perform_async(101) } # in a member
#   Jobwire::Batch.open(parent: batch) { ... } # a batch inside another, which waits for its end
#
# The push takes the lock, or enters the member, and writes the job in one step; perform_async returns
# the id, perform_bulk nil for each job of that kind. Sidekiq acknowledges a job before it runs, so its
# end releases the lock, frees the slot and ends the member in a second step: a crash leaves the lock
# to its bound, the slot to its lease of a minute, and the batch open. A deletion on Sidekiq's page
# releases no lock and ends no member.

require "digest"
require "json"
require "securerandom"
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

  # At most so many jobs at once, or so many starts in a time.
  module Limit
    FIELD = "jw_limit"
    LEASE = 60_000 # milliseconds
    RENEWED = 20 # seconds between two renewals of the leases
    LONGEST = 300 # seconds of a wait if no slot becomes free
    @slots = {}
    @lock = Mutex.new

    class << self
      # The field of X-LIMIT-2, from what the class says. A job that comes back from retry or schedule
      # has its field already, and only the name of its class: a wrong limit must not lose it.
      def described(job_class, wish, args)
        limit = wish.transform_keys(&:to_s)
        if (by = limit.delete("by"))
          text = Key.text(by.respond_to?(:call) ? by.call(*args) : by.map { |at| args[at] })
          limit["key"] = (text.bytesize <= 100) ? text : Digest::SHA256.hexdigest(text)
        end
        limit["cost"] = limit["cost"].call(*args) if limit["cost"].respond_to?(:call)
        limit["per"] ||= 1 unless limit["at_once"]
        limit["burst"] ||= limit["rate"].ceil if limit["rate"].is_a?(Numeric)
        return limit if of({FIELD => limit}) || !job_class.is_a?(Class)
        raise ArgumentError, "#{job_class}: jw_limit #{limit} is not a limit; see the head of jobwire.rb"
      end

      # The limit that a payload describes, or nil.
      def of(job)
        limit = job[FIELD]
        return unless limit.is_a?(Hash) && /\A[A-Za-z0-9_.-]{1,100}\z/.match?(limit["name"].to_s)
        return unless limit.fetch("key", "").then { |key| key.is_a?(String) && key.bytesize <= 100 }
        return unless limit.values_at("at_once", "window", "rate").compact.one?
        return unless limit["at_once"] || [limit["per"], limit["rate"] || 1].all? { |one| number?(one) }
        most = limit.values_at("at_once", "window", "burst").compact.first
        return unless most.is_a?(Integer) && most.between?(1, limit["rate"] ? 1_000_000_000 : 10_000)
        limit if limit.fetch("cost", 1).then { |cost| cost.is_a?(Integer) && cost.between?(1, most) }
      end

      # Runs the job, or lets it wait in the schedule. [X-LIMIT-3] to [X-LIMIT-11]
      def within(job, queue, &run)
        limit = of(job)
        return yield unless limit
        token = SecureRandom.hex(6)
        seconds = limit["at_once"] ? take(limit, job["jid"], token) : ask(limit, job["jid"])
        return wait(limit, job, queue, seconds) if seconds.positive?
        limit["at_once"] ? hold(limit, job["jid"], token, queue, &run) : yield
      end

      private

      def number?(value) = value.is_a?(Numeric) && value.positive? && value <= 1_000_000_000

      def cost(limit) = limit.fetch("cost", 1)

      def keys(limit, *parts)
        name = [limit["name"], limit["key"]].compact.reject(&:empty?).join(":")
        parts.map { |part| "jobwire:limit:#{name}:#{part}" }
      end

      def text(limit)
        members = {"key" => "", **limit.slice("name", "key", "at_once", "rate", "window", "per", "burst")}
        %w[rate per].each { |one| members[one] = members[one].to_f if members[one] }
        JSON.generate(members.sort.to_h)
      end

      def take(limit, jid, token, renew: 0)
        words = [renew, cost(limit), jid, token, limit["at_once"], LEASE, text(limit)]
        taken = Jobwire.script("limit_take", [*keys(limit, "held", "line", "jobs"), "jobwire:limits"], words)
        (taken == 1) ? 0 : LONGEST
      end

      def ask(limit, jid)
        micros = limit["per"] * 1e6
        if limit["window"]
          words = [jid, cost(limit), limit["window"], micros, [micros, 1e6].max]
        else
          gains = micros / limit["rate"]
          fills = gains * limit["burst"]
          words = [jid, gains * cost(limit), fills, [fills, 1e6].max]
        end
        name, state = limit["window"] ? %w[limit_window starts] : %w[limit_rate full]
        Jobwire.script(name, [*keys(limit, state, "line"), "jobwire:limits"], [*words, text(limit)]) / 1e6
      end

      def hold(limit, jid, token, queue)
        @lock.synchronize do
          @slots[token] = [limit, jid]
          @renewer = Thread.new { renew } unless @renewer&.alive?
        end
        yield
      ensure
        @lock.synchronize { @slots.delete(token) }
        free(limit, queue, slot: "#{cost(limit)}:#{jid}:#{token}")
      end

      def renew
        loop do
          sleep RENEWED
          @lock.synchronize { @slots.to_a }.each { |token, (limit, jid)| take(limit, jid, token, renew: 1) }
        rescue => error
          Sidekiq.logger.warn("slots of limits are not renewed: #{error.message}")
        end
      end

      def wait(limit, job, queue, seconds)
        member = JSON.generate(job.merge("queue" => queue))
        Jobwire.redis("ZADD", "schedule", (Time.now.to_f + seconds).to_s, member)
        place = "#{cost(limit)}:#{queue.bytesize}:#{queue}#{member}"
        free(limit, queue, jid: job["jid"], place: place) if limit["at_once"]
      end

      def free(limit, queue, slot: "", jid: "", place: "")
        places = [*keys(limit, "held", "line", "jobs"), "schedule", "queues", "queue:#{queue}"]
        Jobwire.script("limit_free", places, [slot, limit["at_once"], LEASE, queue, jid, place])
      end
    end
  end

  class BatchEnded < StandardError; end

  # Jobs that belong together, and the jobs that follow their end.
  class Batch
    FIELD = "jw_batch"
    CALLBACK = "jw_callback"
    EVENTS = %i[on_success on_complete on_death].freeze
    MAX_DEPTH = 8 # of a batch and those around it

    attr_reader :id, :queue, :parent

    class << self
      # Makes a batch; the jobs that the block enqueues are its members. [X-BATCH-1] [X-BATCH-4]
      def open(description: "", parent: nil, **callbacks)
        unknown = callbacks.keys - EVENTS
        raise ArgumentError, "#{unknown.first} is no callback; give #{EVENTS.join(", ")}" if unknown.any?
        raise ArgumentError, "batches are at most #{MAX_DEPTH} deep" if parent && parent.lineage.size >= MAX_DEPTH
        id = SecureRandom.hex(12)
        made = callbacks.transform_values { |(job_class, *args)| payload { job_class.perform_async(*args) } }
        queues = made.values.map { |job| job["queue"] }.uniq
        raise ArgumentError, "callbacks in the queues #{queues.join(", ")}; give them one" if queues.size > 1
        batch = new(id, queues.first || "default", parent)
        batch.make(made, description)
        begin
          batch.jobs { yield batch }
        rescue Exception # also of a stop: a batch that is not closed never ends
          batch.cancel
          raise
        end
        batch.finish("closed")
        batch
      end

      # The batch of the job that runs in this thread, or of its callback; or nil.
      def current = Thread.current[:jobwire_batch]

      # The batch that a field names, or nil.
      def named(field, depth = 1)
        return unless field.is_a?(Hash) && field["queue"].is_a?(String) && !field["queue"].empty?
        return unless /\A[0-9A-Za-z_-]{1,64}\z/.match?(field["id"].to_s) && depth <= MAX_DEPTH
        parent = field["parent"] && named(field["parent"], depth + 1)
        new(field["id"], field["queue"], parent) if parent || field["parent"].nil?
      end

      # Ends a member that died.
      def dead(job) = named(job[FIELD])&.finish("dead", job["jid"])

      # Lets `taker` have the jobs that the block enqueues.
      def giving(taker)
        before, Thread.current[:jobwire_taker] = Thread.current[:jobwire_taker], taker
        yield
      ensure
        Thread.current[:jobwire_taker] = before
      end

      # Runs a job, unless its batch was cancelled, and ends it if it succeeds. [X-BATCH-5] [X-BATCH-7]
      def around(job)
        batch = named(job[FIELD])
        return batch.finish("dropped", job["jid"]) if batch&.cancelled?
        Thread.current[:jobwire_batch] = batch || named(job[CALLBACK])
        result = yield
        batch&.finish("done", job["jid"])
        result
      ensure
        Thread.current[:jobwire_batch] = nil
      end

      private

      def payload(&block)
        jobs = []
        giving(->(job, _queue) { jobs << job }, &block)
        jobs.first || raise(ArgumentError, "client middleware stopped a callback; let it pass")
      end
    end

    def initialize(id, queue, parent = nil)
      @id = id
      @queue = queue
      @parent = parent
    end

    # This batch, and those around it from the inside out.
    def lineage = [self, *parent&.lineage]

    def field = {"id" => id, "queue" => queue, "parent" => parent&.field}.compact

    # The jobs that the block enqueues become members. [X-BATCH-2] [X-BATCH-3]
    def jobs(&block)
      Batch.giving(method(:add), &block)
      self
    end

    # Drops the members that have not begun, and all callbacks.
    def cancel = finish("cancelled") == 1

    # Also if a batch around it is. [X-BATCH-11]
    def cancelled? = lineage.any? { |level| Jobwire.redis("HGET", level.keys.first, "state") == "cancelled" }

    def make(callbacks, description)
      words = ["state", "open", "created_at", Time.now.to_f, "total", 0, "queue", queue, "description", description]
      callbacks.each do |on, job|
        words << on.to_s << JSON.generate(job.merge(CALLBACK => field.merge("on" => on.to_s)))
      end
      words << "parent" << JSON.generate(parent.field) if parent
      outer = lineage.drop(1).flat_map(&:keys)
      taken((parent || self).id, Jobwire.script("batch_open", [keys.first, *outer], words.map(&:to_s)))
    end

    def finish(how, jid = "")
      places = lineage.flat_map { |level| [*level.keys, "queue:#{level.queue}"] }
      words = [how, jid, lineage.size, Jobwire.now.to_s, "", 0, "", 0]
      Jobwire.script("batch_end", [*places, "queues"], words)
    end

    def keys = ["", ":open", ":failed"].map { |part| "jobwire:batch:#{id}#{part}" }

    private

    def add(job, queue)
      job[FIELD] = field
      text = JSON.generate(job.merge("enqueued_at" => Jobwire.now))
      places = ["queues", *lineage.flat_map(&:keys), "queue:#{queue}"]
      taken(id, Jobwire.script("batch_add", places, [lineage.size, queue, text, job["jid"]]))
    end

    def taken(id, state)
      return if %w[open closed].include?(state)
      raise BatchEnded, "batch #{id} is #{state.empty? ? "gone" : state}; push the job without it"
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
      config.death_handlers << lambda do |job, _error|
        release(job, "until_done")
        Batch.dead(job)
      end
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

    # Runs a script of the directory lua.
    def script(name, keys, words)
      text = (@scripts ||= {})[name] ||= File.read(File.join(__dir__, "lua", "#{name}.lua"))
      redis("EVALSHA", Digest::SHA1.hexdigest(text), keys.size, *keys, *words)
    rescue => error
      raise unless error.message.start_with?("NOSCRIPT")
      redis("EVAL", text, keys.size, *keys, *words)
    end

    def redis(*command) = Sidekiq.redis { |connection| connection.call(*command) }

    def now = (Sidekiq::VERSION.to_i >= 8) ? (Time.now.to_f * 1000).to_i : Time.now.to_f
  end

  class ClientMiddleware
    def call(job_class, job, queue, _pool)
      limit = job[Limit::FIELD]
      job[Limit::FIELD] = Limit.described(job_class, limit, job["args"]) if limit.is_a?(Hash)
      duplicate = describe(job, queue)
      taker = Thread.current[:jobwire_taker]
      return yield unless duplicate || taker
      if taker
        problem = "takes its lock with the push" if duplicate
        problem = "is scheduled" if job["at"]
        raise ArgumentError, "#{job["class"]} #{problem}; enqueue it outside of the batch" if problem
        taker.call(job, queue)
      else
        holder = push(job, queue)
        raise DuplicateJob.new(job, holder) if holder != "" && duplicate == "raise"
        return if holder != ""
      end
      Thread.current[:jobwire_pushed] = job["jid"]
      nil # it is written: Sidekiq must not write it again
    end

    private

    # Describes the lock; returns what a duplicate gets, or nil if the push takes no lock.
    def describe(job, queue)
      wish = job[FIELD]
      # A job that comes back from retry or schedule has its lock already.
      return if !wish.is_a?(Hash) || Jobwire.lock(job)
      wish = wish.transform_keys(&:to_s)
      scope = wish.fetch("scope", "until_done").to_s
      by = wish["by"]
      value = by.respond_to?(:call) ? by.call(*job["args"]) : by&.map { |at| job["args"][at] } || job["args"]
      digest = Key.digest(job["class"].to_s, queue, value)
      job[FIELD] = {"digest" => digest, "scope" => scope, "seconds" => wish.fetch("seconds")}
      wish.fetch("duplicate", "raise").to_s unless scope == "while_running"
    end

    def push(job, queue)
      if (at = job["at"])
        return Jobwire.take(job, place: "schedule", text: JSON.generate(job.except("at")), score: at)
      end
      text = JSON.generate(job.merge("enqueued_at" => Jobwire.now))
      Jobwire.take(job, place: "queue:#{queue}", text: text, queue: queue)
    end
  end

  class ServerMiddleware
    def call(_instance, job, queue, &run)
      Limit.within(job, queue) { locked(job, queue, &run) }
    end

    private

    def locked(job, queue, &run)
      scope = Jobwire.lock(job)&.fetch("scope", nil)
      Jobwire.release(job, scope) if scope == "until_start"
      return put_off(job, queue) if scope == "while_running" && Jobwire.take(job) != ""
      begin
        result = Batch.around(job, &run)
      rescue => error
        ends = job["retry"] == false && !interrupted?(error)
        Jobwire.release(job, scope) if scope == "while_running" || ends
        Batch.dead(job) if ends
        raise error
      end
      Jobwire.release(job, scope) if %w[until_done while_running].include?(scope)
      result
    end

    # An iterable job that is interrupted goes on later.
    def interrupted?(error) = defined?(Sidekiq::Job::Interrupted) && error.is_a?(Sidekiq::Job::Interrupted)

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
