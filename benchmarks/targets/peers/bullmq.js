// BullMQ, for benchmarks/toolbox.py: promises of one event loop of Node.js.
//
//   node bullmq.js work                    run jobs until killed
//   node bullmq.js push FEATURE ARGUMENTS  push the jobs of a feature; print start and end
//
// Chains are flows of one child each. The limit is its global concurrency, and the rate its limiter,
// each of a queue of its own.
// Locks of dead workers end after 5 s instead of 30, and a job may lose its worker three times
// instead of once.
'use strict'

const fs = require('node:fs')
const { FlowProducer, Queue, Worker } = require('bullmq')
const Redis = require('ioredis')

const CALLERS = 100
const LIMIT = 5
const RATE = { max: 200, duration: 1000 }
const LIFE = process.env.BENCH_LIFE
const marks = fs.openSync(process.env.BENCH_MARKS, 'a')
const connect = () =>
  new (Redis.Redis ?? Redis)(process.env.REDIS_URL, { maxRetriesPerRequest: null })
const now = () => (performance.timeOrigin + performance.now()) / 1000
const opts = { removeOnComplete: true }

async function run ({ data: { what, ident, seconds } }) {
  const note = (mark) => fs.writeSync(marks, `${mark} ${what} ${ident} ${LIFE} ${now()}\n`)
  if (seconds) {
    note('s')
    await new Promise((resolve) => setTimeout(resolve, seconds * 1000))
  }
  note('e')
}

const job = (what, ident, seconds, queueName = 'work') =>
  ({ name: 'work', queueName, data: { what, ident, seconds }, opts })
const numbers = (count) => Array.from({ length: count }, (_, number) => number)

const TOOLBOX = {
  async batch (run, count, size, seconds) {
    const flows = new FlowProducer({ connection: connect() })
    for (const group of numbers(count)) {
      const children = numbers(size).map((one) => job('batch', `${run}.${group}.${one}`, seconds))
      await flows.add({ ...job('callback', `${run}.${group}`, seconds), children })
    }
  },
  async chain (run, count, size, seconds) {
    const flows = new FlowProducer({ connection: connect() })
    for (const number of numbers(count)) {
      const add = (after, step) => {
        const one = job('chain', `${run}.${number}.${step}`, seconds)
        return after ? { ...one, children: [after] } : one
      }
      await flows.add(numbers(size).reduce(add, null)) // the last step has the others as its child
    }
  },
  async limit (run, count, size, seconds) {
    const queue = new Queue('limited', { connection: connect() })
    await queue.setGlobalConcurrency(LIMIT)
    await queue.addBulk(numbers(count).map((one) => job('limit', `${run}.${one}`, seconds)))
  },
  async rate (run, count, size, seconds) {
    const queue = new Queue('rated', { connection: connect() })
    await queue.addBulk(numbers(count).map((one) => job('rate', `${run}.${one}`, seconds)))
  },
  async unique (run, count, size, seconds) {
    const queue = new Queue('work', { connection: connect() })
    const keys = numbers(size).flatMap(() => numbers(count))[Symbol.iterator]()
    const caller = async () => {
      for (const key of keys) {
        const { name, data } = job('unique', `${run}.${key}`, seconds)
        await queue.add(name, data, { ...opts, deduplication: { id: `key-${key}` } })
      }
    }
    await Promise.all(numbers(CALLERS).map(caller))
  }
}

async function main () {
  if (process.argv[2] === 'work') {
    for (const name of ['work', 'limited', 'rated']) {
      const worker = new Worker(name, run, {
        connection: connect(),
        concurrency: Number(process.env.BENCH_CONCURRENCY),
        limiter: name === 'rated' ? RATE : undefined,
        lockDuration: 5000,
        stalledInterval: 5000,
        maxStalledCount: 3
      })
      worker.on('error', (error) => console.error(error))
    }
    return
  }
  const started = now()
  const { run: id, count, size, seconds } = JSON.parse(process.argv[4])
  await TOOLBOX[process.argv[3]](id, count, size, seconds)
  console.log(`${started} ${now()}`)
  process.exit()
}

main()
