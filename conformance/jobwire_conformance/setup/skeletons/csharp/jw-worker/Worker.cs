// Worker of `jobwire conform`: our worker with the five standard jobs. Fill in Start.

using System;
using System.IO;
using System.Net.Sockets;
using System.Text;

// The error of failing jobs. The suite checks its name.
public class JobwireError : Exception
{
    public JobwireError(string message) : base(message) { }
}

public static class Worker
{
    static readonly string RedisUrl = Setting("REDIS_URL", "redis://127.0.0.1:6379/0");
    static readonly string[] Queues = Setting("QUEUES", "default").Split(','); // `a:5` has weight 5; without weights: strict
    static readonly int Concurrency = int.Parse(Setting("CONCURRENCY", "1"));
    static readonly string Poll = Setting("POLL", "5"); // seconds between looks for due jobs
    static readonly string Beat = Setting("BEAT", "10"); // seconds between heartbeats
    static readonly string Grace = Setting("GRACE", "25"); // seconds for running jobs after SIGTERM
    static readonly string Generation = Setting("GENERATION", "8"); // 7: times in seconds, 8: milliseconds
    static readonly string Run = Setting("RUN", "run");

    class NotFilledIn : Exception { }

    // Run your worker until SIGTERM, with Perform as the code of its jobs, which are named
    // JobwireEcho, JobwireFail, JobwireFlaky, JobwireGate and JobwireSpawn.
    static void Start()
    {
        throw new NotFilledIn();
    }

    // Push `job` with your client. It is the JSON text of an object with class and args, and
    // perhaps queue.
    static void Push(string job)
    {
        throw new NotFilledIn();
    }

    // Run a job. `args` is the JSON text of all arguments (GetRawText in System.Text.Json), `first`
    // the first argument as plain text: a string without quotes and escapes, a number, or the JSON
    // text of an object.
    static void Perform(string name, string jid, string args, string first)
    {
        Report("\"ev\":\"begin\",\"jid\":\"" + jid + "\",\"args\":" + args);
        string failure = null;
        switch (name)
        {
            case "JobwireFail":
                failure = first;
                break;
            case "JobwireFlaky":
                var count = long.Parse(Control("INCR", "jw:" + Run + ":n:" + jid));
                if (count <= long.Parse(first)) failure = "time " + count + " of " + first;
                break;
            case "JobwireGate":
                Control("BLPOP", "jw:" + Run + ":gate:" + first, "0");
                break;
            case "JobwireSpawn":
                Push(first);
                break;
        }
        Report("\"ev\":\"end\",\"jid\":\"" + jid + "\",\"ok\":" + (failure == null ? "true" : "false"));
        if (failure != null) throw new JobwireError(failure);
    }

    // Report an event of a job to the suite.
    static void Report(string members)
    {
        Control("RPUSH", "jw:" + Run + ":ev", "{" + members + "}");
    }

    // Return a setting of the suite.
    static string Setting(string name, string fallback)
    {
        return Environment.GetEnvironmentVariable("JOBWIRE_" + name) ?? fallback;
    }

    // Send one command to the control Redis and return the reply, or the last part of it. You can
    // use your own client.
    static string Control(params string[] words)
    {
        var url = new Uri(Setting("CONTROL_URL", RedisUrl));
        var database = url.AbsolutePath.Trim('/');
        var frame = new StringBuilder("SELECT " + (database == "" ? "0" : database) + "\r\n");
        frame.Append("*" + words.Length + "\r\n");
        foreach (var word in words)
        {
            frame.Append("$" + Encoding.UTF8.GetByteCount(word) + "\r\n" + word + "\r\n");
        }
        using (var connection = new TcpClient(url.Host, url.Port))
        {
            var stream = connection.GetStream();
            var bytes = Encoding.UTF8.GetBytes(frame.ToString());
            stream.Write(bytes, 0, bytes.Length);
            var replies = new BufferedStream(stream);
            Reply(replies);
            return Reply(replies);
        }
    }

    // Read one reply.
    static string Reply(Stream replies)
    {
        var line = new StringBuilder();
        for (int c; (c = replies.ReadByte()) != '\n';)
        {
            if (c < 0) throw new EndOfStreamException("the control Redis closed the connection");
            line.Append((char)c);
        }
        var text = line.ToString(1, line.Length - 1).Trim();
        if (line[0] == '-') throw new IOException("the control Redis replied " + line);
        if (line[0] == '$' && text != "-1")
        {
            var data = new byte[int.Parse(text) + 2];
            for (int read = 0; read < data.Length;) read += replies.Read(data, read, data.Length - read);
            text = Encoding.UTF8.GetString(data, 0, data.Length - 2);
        }
        if (line[0] == '*')
        {
            for (int left = int.Parse(text); left > 0; left--) text = Reply(replies);
        }
        return text;
    }

    static int Main()
    {
        try
        {
            Start();
            return 0;
        }
        catch (NotFilledIn)
        {
            Console.Error.WriteLine("Worker.cs: fill in `Start`");
            return 1;
        }
    }
}
