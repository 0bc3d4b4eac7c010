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
// Any other error is answered as unknown.
async function push(job, at, delay) {
  throw new NotFilledIn();
}

// Carry out one request; return the answer without its id.
async function perform(op, line) {
  switch (op) {
    case "hello":
      return { ok: { driver: 1, version: VERSION, ops: OPERATIONS } };
    case "push": {
      const request = JSON.parse(line);
      return { ok: { jid: await push(request.job, request.at, request.in) } };
    }
    case "bye":
      return { ok: {} };
  }
  return { unsupported: true };
}

// An error outside of `push`, for example of a connection in the background, ends the request.
let stray = (error) => console.error(error);
process.on("uncaughtException", (error) => stray(error));

// Return the answer to one request, without its id. No error may end the driver.
async function answer(op, line) {
  try {
    const failed = new Promise((_, reject) => (stray = reject));
    return await Promise.race([perform(op, line), failed]);
  } catch (error) {
    if (error instanceof NotFilledIn) {
      console.error("driver.mjs: fill in `push`");
      return { unsupported: true };
    }
    const known = error instanceof Rejected || error instanceof Unknown;
    if (!known) console.error(error);
    const kind = error instanceof Rejected ? "rejected" : "unknown";
    return { error: { kind, message: `${error?.name ?? "error"}: ${error?.message ?? error}` } };
  } finally {
    stray = (error) => console.error(error);
  }
}

for await (const line of createInterface({ input: process.stdin })) {
  // Every request begins with id and op, without spaces: {"id":1,"op":"push",...
  const [, id, op] = /^\{"id":(\d+),"op":"(\w+)"/.exec(line) ?? [];
  const text = JSON.stringify({ id: Number(id), ...(await answer(op, line)) });
  await new Promise((written) => process.stdout.write(`${text}\n`, written));
  if (op === "bye") process.exit(0);
}
