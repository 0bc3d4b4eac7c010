"""Code for the gaps of the skeletons, in each language."""

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


# The driver's job is a map; the worker's job is one text, which is first decoded into a map.
GO_PUSH = """\
	item := map[string]any{"queue": "default", "retry": true}
	for name, value := range given {
		item[name] = value
	}
	now, random := time.Now().UnixMilli(), make([]byte, 12)
	rand.Read(random)
	jid := hex.EncodeToString(random)
	item["jid"], item["created_at"], item["enqueued_at"] = jid, now, now
	queue := fmt.Sprint(item["queue"])
	if text, ok := item["queue"].(json.RawMessage); ok {
		queue = strings.Trim(string(text), `"`)
	}
	payload, err := json.Marshal(item)
	if err == nil {
		redis("SADD", "queues", queue)
		redis("LPUSH", "queue:"+queue, string(payload))
	}
"""
GO_START = """\
	over := make(chan os.Signal, 1)
	signal.Notify(over, syscall.SIGTERM)
	count, _ := strconv.Atoi(concurrency)
	for ; count > 0; count-- {
		go func() {
			for {
				payload := redis("RPOP", "queue:"+queues[0])
				if payload == "" {
					time.Sleep(20 * time.Millisecond)
					continue
				}
				var job struct {
					Class string
					Jid   string
					Args  []json.RawMessage
				}
				if err := json.Unmarshal([]byte(payload), &job); err != nil {
					panic(err)
				}
				jobs[job.Class](job.Jid, job.Args)
			}
		}()
	}
	<-over
	return nil
"""
GO_MORE = """
// redis returns the reply to a command, empty if there is none.
func redis(words ...string) string {
	there, err := url.Parse(redisURL)
	if err != nil {
		panic(err)
	}
	connection, err := net.Dial("tcp", there.Host)
	if err != nil {
		panic(err)
	}
	defer connection.Close()
	fmt.Fprintf(connection, "*%d\\r\\n", len(words))
	for _, word := range words {
		fmt.Fprintf(connection, "$%d\\r\\n%s\\r\\n", len(word), word)
	}
	replies := bufio.NewReader(connection)
	line, err := replies.ReadString('\\n')
	if err != nil || line[0] == '-' {
		panic(fmt.Sprint(line, err))
	}
	size, _ := strconv.Atoi(strings.TrimSpace(line[1:]))
	if line[0] != '$' || size < 0 {
		return ""
	}
	found := make([]byte, size)
	if _, err := io.ReadFull(replies, found); err != nil {
		panic(err)
	}
	return string(found)
}
"""
GO_IMPORTS = ("crypto/rand", "encoding/hex", "net", "net/url", "strconv", "strings", "time")

# Without a JSON library, because the doctor sends no quotes in names and classes.
RUST_PUSH = """\
    let queue = between(job, r#""queue":""#, "\\"");
    let mut bytes = [0; 12];
    let mut random = std::fs::File::open("/dev/urandom").unwrap();
    std::io::Read::read_exact(&mut random, &mut bytes).unwrap();
    let jid: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let payload = format!(r#"{{"jid":"{jid}",{}"#, job.trim_start_matches('{'));
    redis(&["LPUSH", &format!("queue:{queue}"), &payload]);
"""
RUST_START = """\
    let count: usize = setting("CONCURRENCY", "1").parse().unwrap();
    let work = || loop {
        let job = redis(&["RPOP", &format!("queue:{}", setting("QUEUES", "default"))]);
        if job.is_empty() {
            std::thread::sleep(std::time::Duration::from_millis(20));
            continue;
        }
        let class = between(&job, r#""class":""#, "\\"");
        let jid = between(&job, r#""jid":""#, "\\"");
        let from = job.find(r#""args":"#).unwrap() + 7;
        let mut depth = 0;
        let length = job[from..].find(|c| {
            depth += i32::from("[{".contains(c)) - i32::from("]}".contains(c));
            depth == 0
        });
        let args = &job[from..=from + length.unwrap()];
        let first = args.trim_matches(&['[', ']', '"'][..]);
        let _ = perform(class, jid, args, first);
    };
    // The signal ends it, as it has no jobs in hand that would have to be put back.
    std::thread::scope(|all| {
        for _ in 0..count {
            all.spawn(work);
        }
    });
    Ok(())
"""
RUST_MORE = """
fn between<'a>(text: &'a str, before: &str, after: &str) -> &'a str {
    text.split_once(before).unwrap().1.split_once(after).unwrap().0
}

fn redis(words: &[&str]) -> String {
    use std::io::Read;
    let url = env::var("JOBWIRE_REDIS_URL").unwrap();
    let address = url.trim_start_matches("redis://").split('/').next().unwrap();
    let mut connection = std::net::TcpStream::connect(address).unwrap();
    let mut frame = format!("*{}\\r\\n", words.len());
    for word in words {
        frame += &format!("${}\\r\\n{word}\\r\\n", word.len());
    }
    connection.write_all(frame.as_bytes()).unwrap();
    let mut replies = io::BufReader::new(connection);
    let mut line = String::new();
    replies.read_line(&mut line).unwrap();
    let size: i64 = line[1..].trim().parse().unwrap_or(0);
    if !line.starts_with('$') || size < 0 {
        return String::new();
    }
    let mut found = vec![0; size as usize];
    replies.read_exact(&mut found).unwrap();
    String::from_utf8(found).unwrap()
}
"""

# The JDK has no JSON library: arguments are pieces of the payload, whose text is JSON.
JAVA_PUSH = """\
        String given = JOB;
        byte[] random = new byte[12];
        new java.security.SecureRandom().nextBytes(random);
        StringBuilder digits = new StringBuilder();
        for (byte each : random) digits.append(String.format("%02x", each));
        String jid = digits.toString();
        String queue = Redis.between(given, "\\"queue\\":\\"", "\\"");
        Redis.call("SADD", "queues", queue);
        Redis.call("LPUSH", "queue:" + queue, "{\\"jid\\":\\"" + jid + "\\"," + given.substring(1));
"""
JAVA_START = """\
        Runnable work = () -> {
            try {
                while (true) {
                    String job = Redis.call("RPOP", "queue:" + QUEUES[0]);
                    if (job == null) {
                        Thread.sleep(20);
                        continue;
                    }
                    String jid = Redis.between(job, "\\"jid\\":\\"", "\\"");
                    try {
                        String args = job.substring(job.indexOf("\\"args\\":") + 7);
                        String name = Redis.between(job, "\\"class\\":\\"", "\\"");
                        jobs.get(name).perform(jid, Redis.items(args));
                    } catch (JobwireError error) {
                        continue;
                    }
                }
            } catch (Exception error) {
                error.printStackTrace();
            }
        };
        // The signal ends it, because it has no jobs in hand that would have to be put back.
        for (int count = CONCURRENCY; count > 1; count--) new Thread(work).start();
        work.run();
"""
JAVA_MORE = """
class Redis {
    static String between(String text, String before, String after) {
        int at = text.indexOf(before) + before.length();
        return text.substring(at, text.indexOf(after, at));
    }

    /** The items of the array that begins the text. */
    static java.util.List<Object> items(String text) {
        java.util.List<Object> items = new java.util.ArrayList<>();
        int depth = 0, from = 1;
        boolean inText = false;
        for (int at = 0; ; at++) {
            char c = text.charAt(at);
            if (inText) {
                if (c == '\\\\') at++;
                else if (c == '"') inText = false;
            } else if (c == '"') inText = true;
            else if (c == '[' || c == '{') depth++;
            else if ((c == ',' && depth == 1) || ((c == ']' || c == '}') && --depth == 0)) {
                if (at > from) items.add(new Raw(text.substring(from, at)));
                from = at + 1;
                if (depth == 0) return items;
            }
        }
    }

    static final class Raw {
        final String json;

        Raw(String json) {
            this.json = json;
        }

        @Override
        public String toString() {
            return json;
        }
    }

    static String call(String... words) throws java.io.IOException {
        java.net.URI url = java.net.URI.create(System.getenv("JOBWIRE_REDIS_URL"));
        java.nio.charset.Charset utf8 = java.nio.charset.StandardCharsets.UTF_8;
        StringBuilder frame = new StringBuilder("*" + words.length + "\\r\\n");
        for (String word : words) {
            frame.append("$" + word.getBytes(utf8).length + "\\r\\n" + word + "\\r\\n");
        }
        try (java.net.Socket connection = new java.net.Socket(url.getHost(), url.getPort())) {
            connection.getOutputStream().write(frame.toString().getBytes(utf8));
            java.io.InputStream replies = connection.getInputStream();
            StringBuilder line = new StringBuilder();
            for (int c; (c = replies.read()) != '\\n'; ) line.append((char) c);
            if (line.charAt(0) == '-') throw new java.io.IOException(line.toString());
            int size = Integer.parseInt(line.substring(1).trim());
            if (line.charAt(0) != '$' || size < 0) return null;
            return new String(replies.readNBytes(size), utf8);
        }
    }
}
"""

CSHARP_PUSH = """\
        var given = JOB;
        var random = new byte[12];
        using (var generator = System.Security.Cryptography.RandomNumberGenerator.Create())
        {
            generator.GetBytes(random);
        }
        var jid = BitConverter.ToString(random).Replace("-", "").ToLowerInvariant();
        var queue = Redis.Between(given, "\\"queue\\":\\"", "\\"");
        Redis.Call("SADD", "queues", queue);
        Redis.Call("LPUSH", "queue:" + queue, "{\\"jid\\":\\"" + jid + "\\"," + given.Substring(1));
"""
CSHARP_START = """\
        System.Threading.ThreadStart work = () =>
        {
            while (true)
            {
                var job = Redis.Call("RPOP", "queue:" + Queues[0]);
                if (job == null)
                {
                    System.Threading.Thread.Sleep(20);
                    continue;
                }
                var from = job.IndexOf("\\"args\\":") + 7;
                int depth = 0, end = from;
                do
                {
                    if ("[{".IndexOf(job[end]) >= 0) depth++;
                    if ("]}".IndexOf(job[end]) >= 0) depth--;
                    end++;
                } while (depth > 0);
                var args = job.Substring(from, end - from);
                var first = args.Substring(1, args.Length - 2).Trim('"');
                try
                {
                    Perform(
                        Redis.Between(job, "\\"class\\":\\"", "\\""),
                        Redis.Between(job, "\\"jid\\":\\"", "\\""), args, first);
                }
                catch (JobwireError)
                {
                    continue;
                }
            }
        };
        // The signal ends it, because it has no jobs in hand that would have to be put back.
        for (int count = Concurrency; count > 1; count--) new System.Threading.Thread(work).Start();
        work();
"""
CSHARP_MORE = """
static class Redis
{
    public static string Between(string text, string before, string after)
    {
        var at = text.IndexOf(before) + before.Length;
        return text.Substring(at, text.IndexOf(after, at) - at);
    }

    public static string Call(params string[] words)
    {
        var url = new Uri(Environment.GetEnvironmentVariable("JOBWIRE_REDIS_URL"));
        var frame = new StringBuilder("*" + words.Length + "\\r\\n");
        foreach (var word in words)
        {
            frame.Append("$" + Encoding.UTF8.GetByteCount(word) + "\\r\\n" + word + "\\r\\n");
        }
        using (var connection = new System.Net.Sockets.TcpClient(url.Host, url.Port))
        {
            var stream = new BufferedStream(connection.GetStream());
            var bytes = Encoding.UTF8.GetBytes(frame.ToString());
            connection.GetStream().Write(bytes, 0, bytes.Length);
            var line = new StringBuilder();
            for (int c; (c = stream.ReadByte()) != '\\n';) line.Append((char)c);
            if (line[0] == '-') throw new IOException(line.ToString());
            var size = int.Parse(line.ToString(1, line.Length - 1));
            if (line[0] != '$' || size < 0) return null;
            var data = new byte[size];
            for (int read = 0; read < size;) read += stream.Read(data, read, size - read);
            return Encoding.UTF8.GetString(data);
        }
    }
}
"""
