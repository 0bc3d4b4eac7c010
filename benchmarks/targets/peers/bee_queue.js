// bee-queue: promises of one event loop of Node.js.
//
//   node bee_queue.js work                             run jobs until killed
//   node bee_queue.js push KIND JOBS [DELAY] [HOW]     enqueue so many; print the seconds it took
//   node bee_queue.js push KIND serve                  one job for each line on standard input
//
// HOW is one, async (100 callers side by side) or bulk (its saveAll, 1,000 at a time; what is not
// measured goes that way). All are due at once, DELAY seconds from the start.
//
// What it does not do for each job, and the others here do or can: it keeps no record of what is
// being worked on but a list of ids, has no statistics, and asks about jobs that stalled only where
// the application does so. Set as its README advises for speed: no events to whoever enqueued, no
// table of jobs in memory, and what succeeded is removed. Retries need `activateDelayedJobs`.
'use strict'

const fs = require('node:fs')
const readline = require('node:readline')
const Queue = require('bee-queue')

const CALLERS = 100
const BATCH = 1000
const working = process.argv[2] === 'work'
const marks = fs.openSync(process.env.BENCH_MARKS, 'a')
const queue = new Queue('bench', {
  redis: { url: process.env.REDIS_URL },
  isWorker: working,
  activateDelayedJobs: working,
  getEvents: false,
  sendEvents: false,
  storeJobs: false,
  removeOnSuccess: true
})

const now = () => (performance.timeOrigin + performance.now()) / 1000
const mark = (word) => fs.writeSync(marks, `${word}\n`)

const JOBS = {
  Nothing: async (value) => mark(value),
  Failing: async (value) => {
    mark(value)
    throw new Error(value)
  },
  AsyncWaiting: async (value) => {
    await new Promise((resolve) => setTimeout(resolve, 10))
    mark(value)
  },
  Lone: async (value) => mark(now() - value)
}

function job (kind, value, due) {
  const made = queue.createJob({ kind, value })
  if (kind === 'Failing') made.retries(25).backoff('fixed', 60000)
  if (due) made.delayUntil(due)
  return made
}

async function all (jobs) {
  const errors = await queue.saveAll(jobs)
  if (errors.size) throw [...errors.values()][0]
}

async function push (kind, jobs, delay, how) {
  const due = delay ? Date.now() + delay * 1000 : 0
  await job(kind, 0, due).save() // connects
  const started = performance.now()
  if (!how || how === 'bulk') {
    for (let first = 1; first < jobs; first += BATCH) {
      const size = Math.min(BATCH, jobs - first)
      await all(Array.from({ length: size }, (_, index) => job(kind, first + index, due)))
    }
  } else {
    let next = 1
    const caller = async () => {
      while (next < jobs) await job(kind, next++, due).save()
    }
    await Promise.all(Array.from({ length: how === 'async' ? CALLERS : 1 }, caller))
  }
  return (performance.now() - started) / 1000
}

async function main () {
  await queue.ready()
  if (working) {
    queue.process(Number(process.env.BENCH_CONCURRENCY), ({ data }) => JOBS[data.kind](data.value))
    return
  }
  const [kind, jobs, delay, how] = process.argv.slice(3)
  if (jobs === 'serve') {
    for await (const line of readline.createInterface({ input: process.stdin })) {
      await job(kind, Number(line)).save()
    }
  } else {
    console.log(await push(kind, Number(jobs), Number(delay ?? 0), how))
  }
  await queue.close()
}

queue.on('error', (error) => {
  console.error(error)
  process.exit(1)
})
main()
