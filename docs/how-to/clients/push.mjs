// Push one job with Node's standard library alone:
//   import { push } from './push.mjs'
//   await push('HardJob', [1, 'two', 9007199254740993n], { queue: 'low', at: 1798761600 })
import { randomBytes } from 'node:crypto'
import { connect } from 'node:net'

const SCRIPT = "redis.call('SADD', KEYS[1], ARGV[1]) return redis.call('LPUSH', KEYS[2], ARGV[2])"

// JSON.stringify writes NaN as null, dates as text and drops functions: refuse them. [PUSH-5]
export function json(value, path, level) {
  const refuse = (why) => { throw new TypeError(`${path}: ${String(value)} ${why}`) }
  if (value === null || typeof value === 'boolean' || typeof value === 'bigint') return `${value}`
  if (typeof value === 'string') return value.isWellFormed() ? JSON.stringify(value) : refuse('is not Unicode')
  if (typeof value === 'number') {
    if (!Number.isFinite(value)) refuse('is not a JSON number') // [PAY-4]
    if (Number.isInteger(value) && !Number.isSafeInteger(value)) refuse('is rounded, use a BigInt') // [PAY-5]
    return Object.is(value, -0) ? '-0.0' : `${value}` // [PAY-6]
  }
  if (level > 100) refuse('nests too deeply') // [PAY-3]
  const inner = (v, key) => json(v, `${path}[${JSON.stringify(key)}]`, level + 1)
  if (Array.isArray(value)) return `[${Array.from(value, inner).join(',')}]`
  if (Object.prototype.toString.call(value) !== '[object Object]') refuse('has no JSON form')
  if (![Object.prototype, null].includes(Object.getPrototypeOf(value))) refuse('has no JSON form')
  return `{${Object.entries(value).map(([k, v]) => `${json(k, path, level)}:${inner(v, k)}`).join(',')}}`
}

// Resolves to the jid when the job exists; an error says whether it may exist. [PUSH-8]
export function push(klass, args, { queue = 'default', retry = true, at, host = '127.0.0.1', port = 6379 } = {}) {
  for (const name of [klass, queue]) if (typeof name !== 'string' || !name) throw new TypeError('a name is not text')
  if (!Array.isArray(args)) throw new TypeError('args is not an array')
  if (typeof retry !== 'boolean' && !(Number.isSafeInteger(retry) && retry >= 0)) throw new TypeError('retry')
  if (at !== undefined && !(typeof at === 'number' && at >= 0 && at < 1e11)) throw new TypeError('at is not in seconds')
  const jid = randomBytes(12).toString('hex')
  const job = { class: klass, jid, created_at: Date.now(), ...(at === undefined && { enqueued_at: Date.now() }) }
  const text = `{"retry":${retry},"queue":${json(queue)},"args":${json(args, 'args', 2)},${json(job, '', 1).slice(1)}`
  const command = at === undefined
    ? ['EVAL', SCRIPT, '2', 'queues', `queue:${queue}`, queue, text] // one script: both or none [PUSH-2]
    : ['ZADD', 'schedule', `${at}`, text] // [SCHED-1]
  const bulk = command.map((word) => `$${Buffer.byteLength(word)}\r\n${word}\r\n`) // bytes, not characters
  return new Promise((resolve, reject) => {
    let reply = '', sent = false
    const end = (error) => { socket.destroy(); error ? reject(new Error(error)) : resolve(jid) }
    const socket = connect(port, host, () => { sent = true; socket.write(`*${bulk.length}\r\n${bulk.join('')}`) })
    socket.on('data', (chunk) => {
      reply += chunk
      if (reply.includes('\r\n')) end(reply[0] === ':' ? '' : `not written: ${reply.trim()}`)
    })
    const lost = (error) => end(`${sent ? `may have been written: ${jid}` : 'not written'} (${error.message})`)
    socket.on('error', lost).on('end', () => lost(new Error('the server closed the connection')))
  })
}
