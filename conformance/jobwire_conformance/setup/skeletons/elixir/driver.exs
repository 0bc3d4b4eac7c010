# Driver of `jobwire conform`: pushes jobs with our client. Fill in `push`; the rest is done.
# Standard output is for answers only; logs go to standard error.

defmodule Driver do
  @version "0" # of the implementation
  @operations ~s(["push"])

  defmodule Rejected do
    @moduledoc "The client refused the job, and nothing was written."
    defexception message: "rejected"
  end

  # Push one job with your client, to JOBWIRE_REDIS_URL, and return its jid. JOBWIRE_GENERATION is
  # 7 for times in seconds, or 8 for milliseconds.
  #
  # `request` is one line of JSON, for your JSON library. Its "job" holds "class", "args" and options
  # under their names in the payload. Beside "job" it may have "at", the time to run it in epoch
  # seconds, or "in", seconds from now. Some requests hold invalid values, on purpose. Raise Rejected if your client refuses
  # the job. Any other error, throw or exit means that the client cannot know whether the job was
  # written.
  def push(_request) do
    throw(:not_filled_in)
  end

  # The answer to one request, without its id. No error may end the driver.
  def answer("hello", _line) do
    ~s("ok":{"driver":1,"version":#{quoted(@version)},"ops":#{@operations}})
  end

  def answer("push", line) do
    ~s("ok":{"jid":#{quoted(push(line))}})
  rescue
    error in Rejected -> failure("rejected", Exception.message(error))
    error -> unknown(Exception.format(:error, error, __STACKTRACE__))
  catch
    :throw, :not_filled_in ->
      IO.puts(:stderr, "driver.exs: fill in `push`")
      ~s("unsupported":true)

    kind, value ->
      unknown(Exception.format(kind, value, __STACKTRACE__))
  end

  def answer("bye", _line), do: ~s("ok":{})
  def answer(_op, _line), do: ~s("unsupported":true)

  defp unknown(text) do
    IO.puts(:stderr, text)
    failure("unknown", text |> String.split("\n") |> hd())
  end

  defp failure(kind, message), do: ~s("error":{"kind":"#{kind}","message":#{quoted(message)}})

  # A text as JSON; nil as null.
  defp quoted(nil), do: "null"

  defp quoted(text) do
    escaped = String.replace(text, ~r/["\\\x00-\x1f]/, fn <<c>> -> "\\u00" <> Base.encode16(<<c>>) end)
    ~s("#{escaped}")
  end

  def run do
    # Every request begins with id and op, without spaces: {"id":1,"op":"push",...
    with line when is_binary(line) <- IO.read(:stdio, :line),
         [_, id, op] <- Regex.run(~r/^\{"id":(\d+),"op":"(\w+)"/, line) do
      IO.puts(~s({"id":#{id},#{answer(op, line)}}))
      if op != "bye", do: run()
    else
      :eof -> :ok
      other -> raise "not a request: #{inspect(other)}"
    end
  end
end

# A crash of a process of the client must not end the driver.
Process.flag(:trap_exit, true)
:io.setopts(:standard_io, encoding: :unicode)

# Logs must not get between the answers.
if Version.match?(System.version(), ">= 1.15.0") do
  :logger.remove_handler(:default)
  :logger.add_handler(:default, :logger_std_h, %{config: %{type: :standard_error}})
else
  Application.ensure_all_started(:logger)
  apply(Logger, :configure_backend, [:console, [device: :standard_error]])
end

Driver.run()
