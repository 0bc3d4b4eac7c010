"""Code for the gaps of the skeletons in scripting languages.

It is minimal, and talks to Redis directly: `push` of the driver, `start` and `push` of the worker,
and their helpers.
"""

from __future__ import annotations

PYTHON_PUSH = """\
    import redis, secrets, time
    now = int(time.time() * 1000)
    item = {"queue": "default", "retry": True, **job, "created_at": now, "enqueued_at": now}
    item = {**item, "jid": secrets.token_hex(12)}
    store = redis.Redis.from_url(REDIS_URL)
    store.sadd("queues", item["queue"])
    store.lpush(f"queue:{item['queue']}", json.dumps(item))
    return item["jid"]
"""
PYTHON_START = """\
    import redis, signal, threading
    over = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: over.set())
    def work():
        store = redis.Redis.from_url(REDIS_URL)
        while not over.is_set():
            if found := store.brpop([f"queue:{queue}" for queue in QUEUES], 1):
                job = json.loads(found[1])
                try:
                    jobs[job["class"]](job["jid"], *job["args"])
                except JobwireError:
                    pass
    threads = [threading.Thread(target=work) for _ in range(CONCURRENCY)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
"""

RUBY_PUSH = """\
  now = (Time.now.to_f * 1000).to_i
  jid = SecureRandom.hex(12)
  item = { "queue" => "default", "retry" => true, **job, "jid" => jid }
  item.update("created_at" => now, "enqueued_at" => now)
  redis("SADD", "queues", item["queue"])
  redis("LPUSH", "queue:#{item["queue"]}", JSON.generate(item))
  jid
"""
RUBY_START = """\
  over = false
  trap("TERM") { over = true }
  work = lambda do
    until over
      payload = redis("RPOP", "queue:#{QUEUES[0]}")
      next sleep(0.02) if payload.nil?

      job = JSON.parse(payload)
      begin
        jobs[job["class"]].call(job["jid"], *job["args"])
      rescue JobwireError
        next
      end
    end
  end
  Array.new(CONCURRENCY) { Thread.new(&work) }.each(&:join)
"""
RUBY_MORE = """\
require "securerandom"
require "socket"
require "uri"

def redis(*words)
  url = URI.parse(REDIS_URL)
  TCPSocket.open(url.host, url.port) do |connection|
    frame = words.map { |word| "$#{word.bytesize}\\r\\n#{word}\\r\\n" }.join
    connection.write("*#{words.size}\\r\\n#{frame}")
    line = connection.gets.chomp
    raise line if line.start_with?("-")
    next nil if line == "$-1"

    line.start_with?("$") ? connection.read(line[1..].to_i) : line
  end
end

"""

JAVASCRIPT_PUSH = """\
  const now = Date.now();
  const jid = randomBytes(12).toString("hex");
  const item = { queue: "default", retry: true, ...job, jid, created_at: now, enqueued_at: now };
  await redis("SADD", "queues", item.queue);
  await redis("LPUSH", `queue:${item.queue}`, JSON.stringify(item));
  return jid;
"""
JAVASCRIPT_START = """\
  let over = false;
  process.on("SIGTERM", () => { over = true; });
  const work = async () => {
    while (!over) {
      const payload = await redis("RPOP", `queue:${QUEUES[0]}`);
      if (payload === null) {
        await new Promise((resolve) => setTimeout(resolve, 20));
        continue;
      }
      const job = JSON.parse(payload);
      await jobs[job.class](job.jid, ...job.args).catch((error) => {
        if (!(error instanceof JobwireError)) throw error;
      });
    }
  };
  await Promise.all(Array.from({ length: CONCURRENCY }, work));
"""
JAVASCRIPT_MORE = """
import { randomBytes } from "node:crypto";
import { connect as dial } from "node:net";

function redis(...words) {
  const { port, hostname } = new URL(REDIS_URL);
  const frame = words.map((word) => `$${Buffer.byteLength(word)}\\r\\n${word}\\r\\n`).join("");
  return new Promise((resolve, reject) => {
    const connection = dial(Number(port), hostname).setEncoding("utf8").on("error", reject);
    let said = "";
    connection.on("data", (data) => {
      said += data;
      const lines = said.split("\\r\\n");
      const whole = said.startsWith("$") && lines[0] !== "$-1" ? 3 : 2;
      if (lines.length < whole) return;
      connection.destroy();
      resolve(lines[0] === "$-1" ? null : lines[whole - 2]);
    });
    connection.write(`*${words.length}\\r\\n${frame}`);
  });
}
"""

PHP_PUSH = """\
    $now = (int) (microtime(true) * 1000);
    $jid = bin2hex(random_bytes(12));
    $item = ['queue' => 'default', 'retry' => true, ...(array) $job, 'jid' => $jid];
    $item += ['created_at' => $now, 'enqueued_at' => $now];
    redis('SADD', 'queues', $item['queue']);
    redis('LPUSH', "queue:{$item['queue']}", json_encode($item));
"""
PHP_START = """\
    $children = [];
    for ($count = 0; $count < CONCURRENCY; $count++) {
        $child = pcntl_fork();
        if ($child === 0) {
            while (true) {
                $payload = redis('RPOP', 'queue:' . QUEUES[0]);
                if ($payload === null) {
                    usleep(20_000);
                    continue;
                }
                $job = json_decode($payload);
                try {
                    $jobs[$job->class]($job->jid, ...$job->args);
                } catch (JobwireError) {
                    continue;
                }
            }
        }
        $children[] = $child;
    }
    pcntl_async_signals(true);
    pcntl_signal(SIGTERM, function () use ($children) {
        foreach ($children as $child) {
            posix_kill($child, SIGKILL);
        }
        exit(0);
    });
    while (true) {
        sleep(1);
    }
"""
PHP_MORE = """
function redis(string ...$words): ?string
{
    $url = parse_url(REDIS_URL);
    $connection = stream_socket_client("tcp://{$url['host']}:{$url['port']}");
    $frame = '*' . count($words) . "\\r\\n";
    foreach ($words as $word) {
        $frame .= '$' . strlen($word) . "\\r\\n$word\\r\\n";
    }
    fwrite($connection, $frame);
    $line = rtrim(fgets($connection));
    if ($line[0] === '-') {
        throw new RuntimeException($line);
    }
    if ($line[0] !== '$' || $line === '$-1') {
        return null;
    }
    return stream_get_contents($connection, (int) substr($line, 1));
}
"""

# Elixir has no JSON library before 1.18: the doctor's arguments are almost Elixir.
ELIXIR_PUSH = """\
    jid = Base.encode16(:crypto.strong_rand_bytes(12), case: :lower)
    [_, queue] = Regex.run(~r/"queue":"([^"]*)"/, given)
    Redis.call(["SADD", "queues", queue])
    Redis.call(["LPUSH", "queue:#{queue}", ~s({"jid":"#{jid}",) <> String.trim_leading(given, "{")])
"""
ELIXIR_START = """\
    tasks =
      for _ <- 1..String.to_integer(setting("CONCURRENCY")) do
        spawn_link(fn -> work() end)
      end

    # The signal ends it, because it has no jobs in hand that would have to be put back.
    Enum.each(tasks, fn pid -> Process.monitor(pid) end)
    receive do: (_ -> System.halt(1))
  end

  defp work do
    case Redis.call(["RPOP", "queue:#{setting("QUEUES")}"]) do
      nil ->
        Process.sleep(20)

      payload ->
        {job, _} =
          payload
          |> String.replace(~s(":), ~s(" => ))
          |> String.replace("{", "%{")
          |> String.replace("null", "nil")
          |> Code.eval_string()

        try do
          perform(job["class"], job["jid"], job["args"])
        rescue
          JobwireError -> :ok
        end
    end

    work()
"""
ELIXIR_MORE = """\
defmodule Redis do
  def call(words) do
    url = URI.parse(System.fetch_env!("JOBWIRE_REDIS_URL"))
    {:ok, socket} =
      :gen_tcp.connect(String.to_charlist(url.host), url.port, [:binary, active: false])

    frame = for word <- words, do: ["$", to_string(byte_size(word)), "\\r\\n", word, "\\r\\n"]
    :ok = :gen_tcp.send(socket, ["*#{length(words)}\\r\\n" | frame])
    answer = read(socket, "")
    :gen_tcp.close(socket)
    answer
  end

  defp read(socket, so_far) do
    {:ok, more} = :gen_tcp.recv(socket, 0)
    text = so_far <> more

    case text do
      "$-1\\r\\n" -> nil
      "$" <> rest -> bulk(socket, text, String.split(rest, "\\r\\n", parts: 2))
      "-" <> error -> raise error
      _ -> text
    end
  end

  defp bulk(socket, text, [size, data]) do
    size = String.to_integer(size)
    if byte_size(data) < size + 2, do: read(socket, text), else: binary_part(data, 0, size)
  end

  defp bulk(socket, text, _), do: read(socket, text)
end

"""

SHELL_PUSH = """\
  job=${1#*'"job":{'} job=${job%'}'}
  queue=${job##*'"queue":"'} queue=${queue%%'"'*}
  jid=$(od -An -N12 -tx1 /dev/urandom | tr -d ' \\n')
  printf '{"jid":"%s",%s' "$jid" "$job" |
    CLI -u "$JOBWIRE_REDIS_URL" -x LPUSH "queue:$queue" >&2 && echo "$jid"
"""
