// npm's package sidekiq as a driver of the conformance suite.
const peer = require("module").createRequire(process.env.JOBWIRE_PEER + "/package.json");
const Sidekiq = peer("sidekiq");
const redis = peer("redis");
const { version } = peer("sidekiq/package.json");

const connection = redis.createClient(process.env.JOBWIRE_REDIS_URL, { retry_strategy: () => 20 });
connection.on("error", (error) => console.error(String(error)));

// The package reports neither the outcome nor the id of a push. Therefore the driver observes its
// commands in the client of Redis. A ZADD ends a push, and so does an SADD after the LPUSH.
let current = null;
for (const name of ["lpush", "sadd", "zadd"]) {
  const send = connection[name].bind(connection);
  connection[name] = (...words) => {
    const callback = typeof words[words.length - 1] === "function" ? words.pop() : () => {};
    if (name !== "sadd") current.jid = JSON.parse(words[words.length - 1]).jid;
    return send(...words, (error, reply) => {
      callback(error, reply);
      if (error) ended({ error: { kind: "unknown", message: String(error) } });
      else if (name !== "lpush") ended({ ok: { jid: current.jid || null } });
    });
  };
}
process.on("uncaughtException", (error) => {
  const kind = current && current.jid ? "unknown" : "rejected";
  ended({ error: { kind, message: String(error) } });
});

function ended(result) {
  if (current) current.done(result);
  current = null;
}

const sidekiq = new Sidekiq(connection);

function timeOf(request) {
  if ("in" in request) {
    return request.in < 1e9 ? Date.now() + request.in * 1000 : request.in * 1000;
  }
  return request.at * 1000;
}

function push(request, done) {
  const { class: name, args, ...options } = request.job;
  if ("at" in request || "in" in request) options.at = new Date(timeOf(request));
  current = { done };
  // A client without a connection keeps its commands for an unlimited time.
  const started = current;
  const late = { error: { kind: "unknown", message: "no reply for 5 s" } };
  setTimeout(() => current === started && ended(late), 5000).unref();
  sidekiq.enqueue(name, args, options);
}

function answer(request, done) {
  if (request.op === "hello") done({ ok: { driver: 1, version, ops: ["push"] } });
  else if (request.op === "push") push(request, done);
  else if (request.op === "bye") done({ ok: {} });
  else done({ unsupported: true });
}

require("readline").createInterface({ input: process.stdin }).on("line", (line) => {
  const request = JSON.parse(line);
  answer(request, (result) => {
    process.stdout.write(JSON.stringify({ id: request.id, ...result }) + "\n");
    if (request.op === "bye") process.exit(0);
  });
});
