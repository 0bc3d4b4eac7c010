// Worker of `jobwire conform`: our worker with the five standard jobs. Fill in start.

import java.io.BufferedInputStream;
import java.io.EOFException;
import java.io.IOException;
import java.io.InputStream;
import java.net.Socket;
import java.net.URI;
import java.nio.charset.StandardCharsets;
import java.util.Iterator;
import java.util.List;
import java.util.Map;

public final class Worker {
    static final String REDIS_URL = setting("REDIS_URL", "redis://127.0.0.1:6379/0");
    static final String[] QUEUES = setting("QUEUES", "default").split(","); // `a:5` has weight 5; without weights: strict
    static final int CONCURRENCY = Integer.parseInt(setting("CONCURRENCY", "1"));
    static final double POLL = Double.parseDouble(setting("POLL", "5")); // seconds between looks for due jobs
    static final double BEAT = Double.parseDouble(setting("BEAT", "10")); // seconds between heartbeats
    static final double GRACE = Double.parseDouble(setting("GRACE", "25")); // seconds for running jobs after SIGTERM
    static final String GENERATION = setting("GENERATION", "8"); // 7: times in seconds, 8: milliseconds
    static final String RUN = setting("RUN", "run");

    /** The error of failing jobs. The suite checks its name. */
    static class JobwireError extends RuntimeException {
        JobwireError(String message) {
            super(message);
        }
    }

    static class NotFilledIn extends RuntimeException {}

    /** A job. Its arguments are values of any JSON library whose toString is JSON, or plain ones. */
    interface Job {
        void perform(String jid, List<?> args) throws Exception;
    }

    /** Register these jobs under their names with your worker, and run it until SIGTERM. */
    static void start(Map<String, Job> jobs) throws Exception {
        throw new NotFilledIn();
    }

    /** Push `job` with your client. It is an object with class and args, and perhaps queue. */
    static void push(Object job) throws Exception {
        throw new NotFilledIn();
    }

    static final Map<String, Job> JOBS = Map.of(
        "JobwireEcho", (jid, args) -> {
            begin(jid, args);
            end(jid, true);
        },
        "JobwireFail", (jid, args) -> {
            begin(jid, args);
            end(jid, false);
            throw new JobwireError(text(args.get(0)));
        },
        "JobwireFlaky", (jid, args) -> {
            begin(jid, args);
            long times = Long.parseLong(text(args.get(0)));
            long count = Long.parseLong(control("INCR", "jw:" + RUN + ":n:" + jid));
            end(jid, count > times);
            if (count <= times) throw new JobwireError("time " + count + " of " + times);
        },
        "JobwireGate", (jid, args) -> {
            begin(jid, args);
            control("BLPOP", "jw:" + RUN + ":gate:" + text(args.get(0)), "0");
            end(jid, true);
        },
        "JobwireSpawn", (jid, args) -> {
            begin(jid, args);
            push(args.get(0));
            end(jid, true);
        });

    static void begin(String jid, List<?> args) throws IOException {
        report("\"ev\":\"begin\",\"jid\":" + json(jid) + ",\"args\":" + json(args));
    }

    static void end(String jid, boolean ok) throws IOException {
        report("\"ev\":\"end\",\"jid\":" + json(jid) + ",\"ok\":" + ok);
    }

    /** Report an event of a job to the suite. */
    static void report(String members) throws IOException {
        control("RPUSH", "jw:" + RUN + ":ev", "{" + members + "}");
    }

    /** A value as JSON. A value of a JSON library is JSON as text. */
    static String json(Object value) {
        if (value instanceof CharSequence) return quoted(value.toString());
        if (value instanceof Map) {
            StringBuilder members = new StringBuilder();
            for (Map.Entry<?, ?> member : ((Map<?, ?>) value).entrySet()) {
                if (members.length() > 0) members.append(',');
                members.append(quoted(member.getKey().toString())).append(':').append(json(member.getValue()));
            }
            return "{" + members + "}";
        }
        if (value instanceof List) {
            StringBuilder items = new StringBuilder();
            for (Iterator<?> each = ((List<?>) value).iterator(); each.hasNext(); ) {
                items.append(json(each.next())).append(each.hasNext() ? "," : "");
            }
            return "[" + items + "]";
        }
        return String.valueOf(value);
    }

    static String quoted(String text) {
        StringBuilder json = new StringBuilder("\"");
        for (char c : text.toCharArray()) {
            if (c == '"' || c == '\\') json.append('\\').append(c);
            else if (c < ' ' || c > '~') json.append(String.format("\\u%04x", (int) c));
            else json.append(c);
        }
        return json.append('"').toString();
    }

    /** An argument as plain text. */
    static String text(Object value) {
        String text = String.valueOf(value);
        return text.startsWith("\"") ? text.substring(1, text.length() - 1) : text;
    }

    /** Return a setting of the suite. */
    static String setting(String name, String fallback) {
        return System.getenv().getOrDefault("JOBWIRE_" + name, fallback);
    }

    /**
     * Send one command to the control Redis and return the reply, or the last part of it. You can
     * use your own client.
     */
    static String control(String... words) throws IOException {
        URI url = URI.create(setting("CONTROL_URL", REDIS_URL));
        String database = url.getPath().replace("/", "");
        StringBuilder frame = new StringBuilder("SELECT " + (database.isEmpty() ? "0" : database) + "\r\n");
        frame.append('*').append(words.length).append("\r\n");
        for (String word : words) {
            frame.append('$').append(word.getBytes(StandardCharsets.UTF_8).length).append("\r\n");
            frame.append(word).append("\r\n");
        }
        try (Socket connection = new Socket(url.getHost(), url.getPort())) {
            connection.getOutputStream().write(frame.toString().getBytes(StandardCharsets.UTF_8));
            InputStream replies = new BufferedInputStream(connection.getInputStream());
            reply(replies);
            return reply(replies);
        }
    }

    /** Read one reply. */
    static String reply(InputStream replies) throws IOException {
        StringBuilder line = new StringBuilder();
        for (int c; (c = replies.read()) != '\n'; ) {
            if (c < 0) throw new EOFException("the control Redis closed the connection");
            line.append((char) c);
        }
        String text = line.substring(1).trim();
        switch (line.charAt(0)) {
            case '-':
                throw new IOException("the control Redis replied " + line);
            case '$':
                int size = Integer.parseInt(text);
                if (size < 0) return null;
                return new String(replies.readNBytes(size + 2), 0, size, StandardCharsets.UTF_8);
            case '*':
                for (int left = Integer.parseInt(text); left > 0; left--) text = reply(replies);
                return text;
            default:
                return text;
        }
    }

    public static void main(String[] arguments) throws Exception {
        try {
            start(JOBS);
        } catch (NotFilledIn error) {
            System.err.println("Worker.java: fill in `start`");
            System.exit(1);
        }
    }
}
