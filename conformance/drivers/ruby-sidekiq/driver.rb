# frozen_string_literal: true

# Sidekiq's client as a driver of the conformance suite.
require "json"
require "sidekiq"

# Sidekiq logs to standard output, which belongs to the answers.
answers = $stdout.dup
$stdout.reopen($stderr)
answers.sync = true

url = ENV.fetch("JOBWIRE_REDIS_URL")
Sidekiq.configure_client { |config| config.redis = { url: url } }
Sidekiq.strict_args! if Sidekiq.respond_to?(:strict_args!)

def push(request)
  job = request.fetch("job").dup
  if request.key?("in")
    delay = request["in"].to_f
    now = Time.now.to_f
    at = delay < 1_000_000_000 ? now + delay : delay
    job["at"] = at if at > now
  end
  job["at"] = request["at"] if request.key?("at")
  { jid: Sidekiq::Client.push(job) }
end

def push_bulk(request)
  items = request.fetch("job").merge("args" => request.fetch("args"))
  items["at"] = request["at"] if request.key?("at")
  items[:spread_interval] = request["spread_interval"] if request.key?("spread_interval")
  { jids: Sidekiq::Client.push_bulk(items) }
end

$stdin.each_line do |line|
  request = JSON.parse(line, max_nesting: false)
  answer =
    begin
      case request["op"]
      when "hello"
        { ok: { driver: 1, version: Sidekiq::VERSION, ops: %w[push push_bulk] } }
      when "push" then { ok: push(request) }
      when "push_bulk" then { ok: push_bulk(request) }
      when "bye" then { ok: {} }
      else { unsupported: true }
      end
    rescue ArgumentError, JSON::JSONError => e
      { error: { kind: "rejected", message: e.message } }
    rescue StandardError => e
      { error: { kind: "unknown", message: "#{e.class}: #{e.message}" } }
    end
  answers.puts JSON.generate({ id: request["id"] }.merge(answer))
  break if request["op"] == "bye"
end
