<?php
// A client of the protocol in PHP, without extensions, and its driver for the conformance suite.

const FLAGS = JSON_PRESERVE_ZERO_FRACTION | JSON_UNESCAPED_SLASHES | JSON_UNESCAPED_UNICODE
    | JSON_UNESCAPED_LINE_TERMINATORS | JSON_THROW_ON_ERROR;

// An integer that does not fit 64 bits passes as a text with this mark. [PAY-5]
define('MARK', bin2hex(random_bytes(12)));

class Rejected extends Exception {}

// Reads only the replies that a client needs: lines, and arrays of lines.
class Redis_
{
    private $socket; // null while there is no connection

    public function __construct(private string $url) {}

    public function transaction(array ...$commands): void
    {
        $this->send(['MULTI'], ...$commands, ...[['EXEC']]);
        for ($i = 0; $i <= count($commands); $i++) {
            $this->line();
        }
        $all = $this->line();
        for ($i = 0; $i < (int) substr($all, 1); $i++) {
            $this->line();
        }
    }

    public function call(string ...$words): string
    {
        $this->send($words);
        return $this->line();
    }

    private function send(array ...$commands): void
    {
        if ($this->socket === null) {
            $address = parse_url($this->url);
            $this->socket = stream_socket_client("tcp://{$address['host']}:{$address['port']}")
                ?: throw new RuntimeException('no connection');
            if (isset($address['pass'])) {
                // Not urldecode, which turns + into a space. [ENV-7]
                $user = rawurldecode($address['user'] ?? '') ?: 'default';
                $this->call('AUTH', $user, rawurldecode($address['pass']));
            }
            $this->call('SELECT', ltrim($address['path'] ?? '', '/') ?: '0');
            $this->refuseCluster();
        }
        $text = '';
        foreach ($commands as $words) {
            $text .= '*' . count($words) . "\r\n";
            foreach ($words as $word) {
                $text .= '$' . strlen($word) . "\r\n$word\r\n";
            }
        }
        fwrite($this->socket, $text);
    }

    // [ENV-8]
    private function refuseCluster(): void
    {
        $size = (int) substr($this->call('INFO', 'cluster'), 1);
        if (str_contains(stream_get_contents($this->socket, $size + 2), 'cluster_enabled:1')) {
            throw new Rejected('a server in cluster mode needs a namespace with a hash tag');
        }
    }

    private function line(): string
    {
        $line = fgets($this->socket);
        if ($line === false || $line[0] === '-') {
            fclose($this->socket);
            $this->socket = null;
            throw new RuntimeException(trim($line ?: 'connection closed'));
        }
        return trim($line);
    }
}

function whole(mixed $value): bool
{
    $large = is_string($value) && preg_match('/^' . MARK . '\d+$/', $value); // [PAY-5]
    return $large || (is_int($value) && $value >= 0);
}

function check(bool $good, string $problem): void
{
    if (!$good) {
        throw new Rejected($problem);
    }
}

// [PUSH-4]
function validate(array $job): void
{
    check(is_string($job['class'] ?? null) && $job['class'] !== '', 'class must be a text');
    check(is_array($job['args'] ?? null), 'args must be an array');
    check(is_string($job['queue']) && $job['queue'] !== '', 'queue must be a text');
    $optional = [
        'retry' => fn($v) => is_bool($v) || whole($v),
        'retry_for' => fn($v) => (is_int($v) || is_float($v)) && $v >= 0 && $v <= 1e9,
        'backtrace' => fn($v) => is_bool($v) || whole($v),
        'tags' => fn($v) => is_array($v) && $v === array_filter($v, 'is_string'),
        'log_level' => fn($v) => (is_int($v) && $v >= 0 && $v <= 5)
            || in_array($v, ['debug', 'info', 'warn', 'error', 'fatal'], true),
    ];
    foreach ($optional as $name => $good) {
        check(!isset($job[$name]) || $good($job[$name]), "$name has a wrong type or is out of range");
    }
}

function now(): int|float
{
    return getenv('JOBWIRE_GENERATION') === '8' ? (int) (microtime(true) * 1000) : microtime(true);
}

function push(Redis_ $redis, object $request): array
{
    $job = ['retry' => true, 'queue' => 'default', ...(array) $request->job];
    validate($job);
    $at = null;
    foreach (['at', 'in'] as $name) {
        if (property_exists($request, $name)) {
            $at = $request->$name;
            check(is_int($at) || is_float($at), 'the time must be a number');
            $at = $name === 'in' && $at < 1e9 ? max($at + microtime(true), 0) : $at; // [SCHED-3]
            check($at >= 0 && $at < 1e11, 'the time must be at least 0 and below 10^11');
            $at = $name === 'in' && $at <= microtime(true) ? null : $at;
        }
    }
    if (isset($job['retry_for'])) {
        $job['retry_for'] = (int) $job['retry_for']; // [PAY-0]
    }
    $last = ['args', 'class', 'jid', 'created_at'];
    $payload = array_diff_key($job, array_flip($last));
    $payload += ['args' => $job['args'], 'class' => $job['class']];
    $payload += ['jid' => ($job['jid'] ?? '') === '' ? bin2hex(random_bytes(12)) : $job['jid']];
    $payload += ['created_at' => $job['created_at'] ?? now()];
    if ($at === null) {
        $payload['enqueued_at'] = now(); // [PUSH-3]
    }
    try {
        $text = json_encode($payload, FLAGS, 100); // [PAY-3] [PAY-4]
        $text = preg_replace('/"' . MARK . '(-?\d+)"/', '$1', $text);
    } catch (JsonException $error) {
        throw new Rejected($error->getMessage());
    }
    if ($at === null) {
        $queue = $job['queue'];
        $redis->transaction(['SADD', 'queues', $queue], ['LPUSH', "queue:$queue", $text]);
    } else {
        $redis->call('ZADD', 'schedule', json_encode($at), $text);
    }
    return ['jid' => $payload['jid']];
}

function answer(Redis_ $redis, object $request): array
{
    try {
        return match ($request->op) {
            'hello' => ['ok' => ['driver' => 1, 'version' => '1', 'ops' => ['push']]],
            'push' => ['ok' => push($redis, $request)],
            'unreadable' => throw new Rejected('the request is not JSON'),
            'bye' => ['ok' => new stdClass()],
            default => ['unsupported' => true],
        };
    } catch (Rejected $error) {
        return ['error' => ['kind' => 'rejected', 'message' => $error->getMessage()]];
    } catch (RuntimeException $error) {
        return ['error' => ['kind' => 'unknown', 'message' => $error->getMessage()]];
    }
}

function decode(string $line): ?object
{
    $part = '/"(?:[^"\\\\]|\\\\.)*+"|-?\d[\d.eE+-]*/';
    $mark = fn($found) => preg_match('/^-?\d{19,}$/', $found[0]) ? '"' . MARK . $found[0] . '"' : $found[0];
    return json_decode(preg_replace_callback($part, $mark, $line), false, 2000);
}

ini_set('display_errors', 'stderr');
$redis = new Redis_(getenv('JOBWIRE_REDIS_URL'));
while (($line = fgets(STDIN)) !== false) {
    // Half a surrogate pair, for example, is no text. [PAY-22]
    $request = decode($line) ?? (object) [
        'id' => (int) preg_replace('/\D+/', '', strstr($line, ',', true)),
        'op' => 'unreadable',
    ];
    echo json_encode(['id' => $request->id] + answer($redis, $request), FLAGS), "\n";
    if ($request->op === 'bye') {
        break;
    }
}
