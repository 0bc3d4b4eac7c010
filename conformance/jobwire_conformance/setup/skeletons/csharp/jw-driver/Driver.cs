// Driver of `jobwire conform`: pushes jobs with our client. Fill in Push; the rest is done.
// Standard output is for answers only; logs go to standard error.

using System;
using System.IO;
using System.Text;
using System.Text.RegularExpressions;

public static class Driver
{
    const string Version = "0"; // of the implementation
    const string Operations = "[\"push\"]";
    static readonly string RedisUrl = Environment.GetEnvironmentVariable("JOBWIRE_REDIS_URL");
    // 7: times in seconds, 8: milliseconds
    static readonly string Generation = Environment.GetEnvironmentVariable("JOBWIRE_GENERATION") ?? "8";

    // The client refused the job, and nothing was written.
    class Rejected : Exception
    {
        public Rejected(string message) : base(message) { }
    }

    class NotFilledIn : Exception { }

    // Push one job with your client, to RedisUrl, and return its jid.
    //
    // `request` is one line of JSON: JsonDocument.Parse(request).RootElement.GetProperty("job") of
    // System.Text.Json holds `class`, `args` and options under their names in the payload; `at` is
    // the time to run it, in epoch seconds; `in` is seconds from now. Some requests hold invalid
    // values, on purpose. Throw Rejected if your client refuses the job. Any other exception means
    // that the client cannot know whether the job was written.
    static string Push(string request)
    {
        throw new NotFilledIn();
    }

    // Return the answer to one request, without its id. No exception may end the driver.
    static string Answer(string op, string request)
    {
        try
        {
            switch (op)
            {
                case "hello":
                    return "\"ok\":{\"driver\":1,\"version\":" + Quoted(Version) + ",\"ops\":" + Operations + "}";
                case "push":
                    return "\"ok\":{\"jid\":" + Quoted(Push(request)) + "}";
                case "bye":
                    return "\"ok\":{}";
                default:
                    return "\"unsupported\":true";
            }
        }
        catch (NotFilledIn)
        {
            Console.Error.WriteLine("Driver.cs: fill in `Push`");
            return "\"unsupported\":true";
        }
        catch (Rejected error)
        {
            return Failure("rejected", error);
        }
        catch (Exception error)
        {
            Console.Error.WriteLine(error);
            return Failure("unknown", error);
        }
    }

    static string Failure(string kind, Exception error)
    {
        var message = Quoted(error.GetType().Name + ": " + error.Message);
        return "\"error\":{\"kind\":\"" + kind + "\",\"message\":" + message + "}";
    }

    // A text as JSON; null as null.
    static string Quoted(string text)
    {
        if (text == null) return "null";
        var json = new StringBuilder("\"");
        foreach (var c in text)
        {
            if (c == '"' || c == '\\') json.Append('\\').Append(c);
            else if (c < ' ' || c > '~') json.Append("\\u").Append(((int)c).ToString("x4"));
            else json.Append(c);
        }
        return json.Append('"').ToString();
    }

    static void Main()
    {
        // Whatever a library prints must not get between the answers.
        var answers = new StreamWriter(Console.OpenStandardOutput()) { AutoFlush = true, NewLine = "\n" };
        Console.SetOut(Console.Error);
        var requests = new StreamReader(Console.OpenStandardInput());
        for (string line; (line = requests.ReadLine()) != null;)
        {
            // Every request begins with id and op, without spaces: {"id":1,"op":"push",...
            var begin = Regex.Match(line, "^\\{\"id\":(\\d+),\"op\":\"(\\w+)\"");
            if (!begin.Success) throw new FormatException("not a request: " + line);
            var op = begin.Groups[2].Value;
            answers.WriteLine("{\"id\":" + begin.Groups[1].Value + "," + Answer(op, line) + "}");
            if (op == "bye") Environment.Exit(0); // even if a thread of the client runs
        }
    }
}
