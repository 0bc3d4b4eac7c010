// Driver of `jobwire conform`: pushes jobs with our client. Fill in push; the rest is done.
// Standard output is for answers only; logs go to standard error.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

public final class Driver {
    static final String VERSION = "0"; // of the implementation
    static final String OPERATIONS = "[\"push\"]";
    static final String REDIS_URL = System.getenv("JOBWIRE_REDIS_URL");
    static final String GENERATION = System.getenv("JOBWIRE_GENERATION"); // 7: times in seconds, 8: ms

    /** The client refused the job, and nothing was written. */
    static class Rejected extends Exception {
        Rejected(String message) {
            super(message);
        }
    }

    static class NotFilledIn extends RuntimeException {}

    /**
     * Push one job with your client, to REDIS_URL, and return its jid.
     *
     * <p>`request` is one line of JSON, for your JSON library. Its `job` holds `class`, `args` and
     * options under their names in the payload. Beside `job` it may have `at`, the time to run it in
     * epoch seconds, or `in`, seconds from now: throw NotFilledIn as long as your client cannot
     * schedule. Some requests hold invalid values, on purpose. Throw Rejected if your client refuses
     * the job. Anything else that is thrown means that the client cannot know whether the job was
     * written.
     */
    static String push(String request) throws Exception {
        throw new NotFilledIn();
    }

    /** Return the answer to one request, without its id. Nothing that is thrown may end the driver. */
    static String answer(String op, String request) {
        try {
            switch (op) {
                case "hello":
                    return "\"ok\":{\"driver\":1,\"version\":" + quoted(VERSION) + ",\"ops\":" + OPERATIONS + "}";
                case "push":
                    return "\"ok\":{\"jid\":" + quoted(push(request)) + "}";
                case "bye":
                    return "\"ok\":{}";
                default:
                    return "\"unsupported\":true";
            }
        } catch (NotFilledIn error) {
            System.err.println("Driver.java: fill in `push`");
            return "\"unsupported\":true";
        } catch (Rejected error) {
            return failure("rejected", error);
        } catch (Throwable error) {
            error.printStackTrace();
            return failure("unknown", error);
        }
    }

    static String failure(String kind, Throwable error) {
        return "\"error\":{\"kind\":\"" + kind + "\",\"message\":" + quoted(error.toString()) + "}";
    }

    /** A text as JSON; null as null. */
    static String quoted(String text) {
        if (text == null) return "null";
        StringBuilder json = new StringBuilder("\"");
        for (char c : text.toCharArray()) {
            if (c == '"' || c == '\\') json.append('\\').append(c);
            else if (c < ' ' || c > '~') json.append(String.format("\\u%04x", (int) c));
            else json.append(c);
        }
        return json.append('"').toString();
    }

    public static void main(String[] arguments) throws Exception {
        // Whatever a library prints must not get between the answers.
        PrintStream answers = System.out;
        System.setOut(System.err);
        Pattern begin = Pattern.compile("\\{\"id\":(\\d+),\"op\":\"(\\w+)\"");
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line; (line = requests.readLine()) != null; ) {
            // Every request begins with id and op, without spaces: {"id":1,"op":"push",...
            Matcher found = begin.matcher(line);
            if (!found.lookingAt()) throw new IllegalArgumentException("not a request: " + line);
            answers.println("{\"id\":" + found.group(1) + "," + answer(found.group(2), line) + "}");
            answers.flush();
            if (found.group(2).equals("bye")) System.exit(0); // even if a thread of the client runs
        }
    }
}
