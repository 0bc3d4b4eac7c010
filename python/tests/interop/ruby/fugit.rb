# frozen_string_literal: true
#
# Fugit, the cron lines of sidekiq-cron, driven by JSON lines.
#
#   in    {"line": "0 3 * * *", "zone": "Europe/Berlin", "next": [1774735200, ...], "last": [...], "count": 3}
#   out   {"next": [[<epoch seconds>, ...], ...], "last": [<epoch seconds>, ...]}, or null
#
# "zone" is the local zone of the process, for a line that has none. "next" answers with the next ticks after
# each instant, "last" with the latest tick before each, as sidekiq-cron asks. null: the line cannot be read.

require "fugit"
require "json"

def ticks(cron, after, count)
  time = EtOrbi::EoTime.new(after, "UTC")
  Array.new(count) { (time = cron.next_time(time)).to_i }
rescue RuntimeError # no tick in many years
  []
end

def last(cron, before)
  cron.previous_time(EtOrbi::EoTime.new(before, "UTC")).to_i
rescue RuntimeError
  nil
end

$stdout.sync = true
$stdin.each_line do |text|
  request = JSON.parse(text)
  ENV["TZ"] = request["zone"] || "UTC"
  cron = begin
    Fugit.parse_cron(request["line"])
  rescue ZeroDivisionError # a step of 0
    nil
  end
  answer = cron && {
    next: request["next"].map { |after| ticks(cron, after, request["count"]) },
    last: request["last"].map { |before| last(cron, before) }
  }
  puts JSON.generate(answer)
end
