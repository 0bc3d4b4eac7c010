// Worker of `jobwire conform`: our worker with the five standard jobs. Fill in `start`.

import { connect } from "node:net";

// The settings of the suite.
const setting = (name, fallback) => process.env[`JOBWIRE_${name}`] ?? fallback;

const REDIS_URL = setting("REDIS_URL", "redis://127.0.0.1:6379/0");
const QUEUES = setting("QUEUES", "default").split(","); // `a:5` has weight 5; without weights: strict
const CONCURRENCY = Number(setting("CONCURRENCY", "1"));
const POLL = Number(setting("POLL", "5")); // seconds between looks for due jobs
const BEAT = Number(setting("BEAT", "10")); // seconds between heartbeats
const GRACE = Number(setting("GRACE", "25")); // seconds for running jobs after SIGTERM
const GENERATION = setting("GENERATION", "8"); // 7: times in seconds, 8: milliseconds
const RUN = setting("RUN", "run");

// The error of failing jobs. The suite checks its name.
class JobwireError extends Error {
  name = "JobwireError";
}

class NotFilledIn extends Error {}

// Register these functions under their names with your worker, and run it until SIGTERM. Each
// takes the jid, then the arguments of the job.
async function start(jobs) {
  throw new NotFilledIn();
}

// Push `job` with your client. It has class and args, and perhaps queue.
async function push(job) {
  throw new NotFilledIn();
}

const jobs = {
  async JobwireEcho(jid, ...args) {
    await report("begin", jid, { args });
    await report("end", jid, { ok: true });
  },
  async JobwireFail(jid, message) {
    await report("begin", jid, { args: [message] });
    await report("end", jid, { ok: false });
    throw new JobwireError(message);
  },
  async JobwireFlaky(jid, times) {
    await report("begin", jid, { args: [times] });
    const count = await control("INCR", `jw:${RUN}:n:${jid}`);
    await report("end", jid, { ok: count > times });
    if (count <= times) throw new JobwireError(`time ${count} of ${times}`);
  },
  async JobwireGate(jid, name) {
    await report("begin", jid, { args: [name] });
    await control("BLPOP", `jw:${RUN}:gate:${name}`, "0");
    await report("end", jid, { ok: true });
  },
  async JobwireSpawn(jid, job) {
    await report("begin", jid, { args: [job] });
    await push(job);
    await report("end", jid, { ok: true });
  },
};

// Report an event of a job to the suite.
const report = (ev, jid, members) =>
  control("RPUSH", `jw:${RUN}:ev`, JSON.stringify({ ev, jid: jid ?? null, ...members }));

// Send one command to the control Redis and return the reply, a number or its text as it came.
// You can use your own client.
function control(...words) {
  const url = new URL(setting("CONTROL_URL", REDIS_URL));
  const frame = words.map((word) => `$${Buffer.byteLength(word)}\r\n${word}\r\n`).join("");
  const select = `SELECT ${url.pathname.slice(1) || 0}\r\n`;
  return new Promise((resolve, reject) => {
    const connection = connect(Number(url.port), url.hostname);
    connection.write(`${select}*${words.length}\r\n${frame}`);
    let received = "";
    connection.setEncoding("utf8").on("error", reject);
    connection.on("data", (data) => {
      received += data;
      const [, line] = received.split("\r\n");
      if (received.split("\r\n").length < 3) return;
      connection.destroy();
      if (line.startsWith("-")) reject(new Error(`the control Redis replied ${line}`));
      else resolve(line.startsWith(":") ? Number(line.slice(1)) : line);
    });
  });
}

try {
  await start(jobs);
} catch (error) {
  if (!(error instanceof NotFilledIn)) throw error;
  process.stderr.write("worker.mjs: fill in `start`\n");
  process.exit(1);
}
