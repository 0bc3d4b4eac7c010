"""Code for the gaps of the skeletons in compiled languages.

It is minimal, and talks to Redis directly: `push` of the driver, `start` and `push` of the worker,
and their helpers.
"""

from __future__ import annotations

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
