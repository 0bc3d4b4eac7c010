# Worker of `jobwire conform`: our worker with the five standard jobs. Fill in `start`.

defmodule JobwireError do
  @moduledoc "The error of failing jobs. The suite checks its name."
  defexception [:message]
end

defmodule Worker do
  # Run your worker until SIGTERM, with `perform` as the code of its jobs, which are named
  # JobwireEcho, JobwireFail, JobwireFlaky, JobwireGate and JobwireSpawn.
  #
  # setting("REDIS_URL") and so on: QUEUES (`a:5` has weight 5; without weights: strict), CONCURRENCY,
  # POLL, BEAT and GRACE in seconds, GENERATION (7: times in seconds, 8: milliseconds).
  def start do
    throw(:not_filled_in)
  end

  # Push `job` with your client. It is a map with "class" and "args", and perhaps "queue".
  def push(_job) do
    throw(:not_filled_in)
  end

  # Run a job with its arguments, as your JSON library decodes them.
  def perform(name, jid, args) do
    report(~s("ev":"begin","jid":#{json(jid)},"args":#{json(args)}))
    failure = run(name, jid, args)
    report(~s("ev":"end","jid":#{json(jid)},"ok":#{failure == nil}))
    if failure, do: raise(JobwireError, message: failure)
  end

  defp run("JobwireEcho", _jid, _args), do: nil
  defp run("JobwireFail", _jid, [message]), do: message

  defp run("JobwireFlaky", jid, [times]) do
    count = String.to_integer(control(["INCR", "jw:#{setting("RUN")}:n:#{jid}"]))
    if count <= times, do: "time #{count} of #{times}"
  end

  defp run("JobwireGate", _jid, [name]) do
    control(["BLPOP", "jw:#{setting("RUN")}:gate:#{name}", "0"])
    nil
  end

  defp run("JobwireSpawn", _jid, [job]) do
    push(job)
    nil
  end

  # Report an event of a job to the suite.
  defp report(members), do: control(["RPUSH", "jw:#{setting("RUN")}:ev", "{#{members}}"])

  # A decoded value as JSON. Your JSON library does it too.
  def json(nil), do: "null"
  def json(text) when is_binary(text) do
    escaped = String.replace(text, ~r/["\\\x00-\x1f]/, fn <<c>> -> "\\u00" <> Base.encode16(<<c>>) end)
    ~s("#{escaped}")
  end

  def json(list) when is_list(list), do: "[#{Enum.map_join(list, ",", &json/1)}]"

  def json(map) when is_map(map) do
    "{#{Enum.map_join(map, ",", fn {name, value} -> json(name) <> ":" <> json(value) end)}}"
  end

  def json(value), do: to_string(value)

  # Return a setting of the suite.
  def setting(name, default \\ ""), do: System.get_env("JOBWIRE_#{name}", default)

  # Send one command to the control Redis and return the reply, or the last part of it. You can use
  # your own client.
  def control(words) do
    url = URI.parse(setting("CONTROL_URL", setting("REDIS_URL")))
    database = String.trim_leading(url.path || "", "/")
    frame = for word <- words, do: ["$", to_string(byte_size(word)), "\r\n", word, "\r\n"]
    head = "SELECT #{if database == "", do: "0", else: database}\r\n*#{length(words)}\r\n"
    options = [:binary, packet: :line, active: false, buffer: 1_048_576]
    {:ok, connection} = :gen_tcp.connect(String.to_charlist(url.host), url.port, options)
    :ok = :gen_tcp.send(connection, [head | frame])
    reply(connection)
    answer = reply(connection)
    :gen_tcp.close(connection)
    answer
  end

  # Read one reply.
  defp reply(connection) do
    {:ok, <<kind::binary-size(1), rest::binary>>} = :gen_tcp.recv(connection, 0)
    text = String.trim_trailing(rest)

    case kind do
      "-" -> raise "the control Redis replied #{text}"
      "$" when text != "-1" -> bulk(connection, String.to_integer(text))
      "*" -> Enum.reduce(1..max(1, String.to_integer(text)), text, fn _, _ -> reply(connection) end)
      _ -> text
    end
  end

  defp bulk(connection, size) do
    :inet.setopts(connection, packet: :raw)
    {:ok, data} = :gen_tcp.recv(connection, size + 2)
    :inet.setopts(connection, packet: :line)
    binary_part(data, 0, size)
  end
end

try do
  Worker.start()
catch
  :throw, :not_filled_in ->
    IO.puts(:stderr, "worker.exs: fill in `start`")
    System.halt(1)
end
