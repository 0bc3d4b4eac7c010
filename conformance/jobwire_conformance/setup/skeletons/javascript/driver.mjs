// Driver of `jobwire conform`: pushes jobs with our client. Fill in `push`; the rest is done.
// Standard output is for answers only; logs go to standard error.

import { createInterface } from "node:readline";

const VERSION = "0"; // of the implementation
const OPERATIONS = ["push"];
const REDIS_URL = process.env.JOBWIRE_REDIS_URL;
const GENERATION = process.env.JOBWIRE_GENERATION ?? "8"; // 7: times in seconds, 8: milliseconds

// The client refused the job, and nothing was written.
class Rejected extends Error {}

// The connection failed. The client cannot know whether the job was written.
class Unknown extends Error {}

class NotFilledIn extends Error {}

// Push one job with your client, to REDIS_URL, and return its jid.
//
// `job` holds `class`, `args` and options under their names in the payload: `queue`, `retry`,
// `tags`. `at` is the time to run it, in epoch seconds; `delay` is seconds from now; both are
// undefined for a job that is due at once. Some requests hold invalid values, on purpose. Throw
// Rejected if your client refuses the job, and Unknown if it cannot know whether it was written.
async function push(job, at, delay) {
  throw new NotFilledIn();
}

// The answer to one request, without its id.
async function answer(request) {
  try {
    switch (request.op) {
      case "hello":
        return { ok: { driver: 1, version: VERSION, ops: OPERATIONS } };
      case "push":
        return { ok: { jid: await push(request.job, request.at, request.in) } };
      case "bye":
        return { ok: {} };
    }
  } catch (error) {
    if (error instanceof Rejected) return { error: { kind: "rejected", message: error.message } };
    if (error instanceof Unknown) return { error: { kind: "unknown", message: error.message } };
    if (!(error instanceof NotFilledIn)) throw error;
    process.stderr.write("driver.mjs: fill in `push`\n");
  }
  return { unsupported: true };
}

for await (const line of createInterface({ input: process.stdin })) {
  const request = JSON.parse(line);
  const text = JSON.stringify({ id: request.id, ...(await answer(request)) });
  await new Promise((written) => process.stdout.write(`${text}\n`, written));
  if (request.op === "bye") process.exit(0);
}
