<?php
// Worker of `jobwire conform`: our worker with the five standard jobs. Fill in start.

declare(strict_types=1);

ini_set('display_errors', 'stderr');

// Return a setting of the suite.
function setting(string $name, string $default): string
{
    $value = getenv("JOBWIRE_$name");
    return $value === false ? $default : $value;
}

define('REDIS_URL', setting('REDIS_URL', 'redis://127.0.0.1:6379/0'));
define('QUEUES', explode(',', setting('QUEUES', 'default'))); // `a:5` has weight 5; without weights: strict
define('CONCURRENCY', (int) setting('CONCURRENCY', '1')); // in PHP: processes
define('POLL', (float) setting('POLL', '5')); // seconds between looks for due jobs
define('BEAT', (float) setting('BEAT', '10')); // seconds between heartbeats
define('GRACE', (float) setting('GRACE', '25')); // seconds for running jobs after SIGTERM
define('GENERATION', setting('GENERATION', '8')); // 7: times in seconds, 8: milliseconds
define('RUN', setting('RUN', 'run'));

// The error of failing jobs. The suite checks its name.
class JobwireError extends Exception {}

class NotFilledIn extends Exception {}

// Register these functions under their names with your worker, and run it until SIGTERM. Each takes
// the jid, then the arguments of the job. Decode JSON objects to stdClass, so that {} and [] differ.
function start(array $jobs): void
{
    throw new NotFilledIn();
}

// Push `$job` with your client. It has class and args, and perhaps queue.
function push(stdClass $job): void
{
    throw new NotFilledIn();
}

// Report an event of a job to the suite.
function report(string $event, ?string $jid, array $members): void
{
    $flags = JSON_THROW_ON_ERROR | JSON_PRESERVE_ZERO_FRACTION;
    control('RPUSH', 'jw:' . RUN . ':ev', json_encode(['ev' => $event, 'jid' => $jid] + $members, $flags));
}

// Send one command to the control Redis and return the reply. You can use your own client.
function control(string ...$words): mixed
{
    $url = parse_url(setting('CONTROL_URL', REDIS_URL));
    $connection = stream_socket_client("tcp://{$url['host']}:{$url['port']}");
    stream_set_timeout($connection, 3600);
    $frame = 'SELECT ' . (ltrim($url['path'] ?? '', '/') ?: '0') . "\r\n*" . count($words) . "\r\n";
    foreach ($words as $word) {
        $frame .= '$' . strlen($word) . "\r\n$word\r\n";
    }
    fwrite($connection, $frame);
    reply($connection);
    return reply($connection);
}

// Read one reply.
function reply($connection): mixed
{
    $line = rtrim((string) fgets($connection));
    $text = substr($line, 1);
    return match ($line[0] ?? '') {
        '$' => (int) $text < 0 ? null : substr(stream_get_contents($connection, (int) $text + 2), 0, -2),
        '*' => array_map(fn() => reply($connection), range(1, max(1, (int) $text))),
        ':' => (int) $text,
        '+' => $text,
        default => throw new RuntimeException("the control Redis replied $line"),
    };
}

const JOBS = [
    'JobwireEcho' => 'echo_job', // any arguments
    'JobwireFail' => 'fail_job',
    'JobwireFlaky' => 'flaky_job',
    'JobwireGate' => 'gate_job',
    'JobwireSpawn' => 'spawn_job',
];

function echo_job(?string $jid, mixed ...$args): void
{
    report('begin', $jid, ['args' => $args]);
    report('end', $jid, ['ok' => true]);
}

function fail_job(?string $jid, string $message): void
{
    report('begin', $jid, ['args' => [$message]]);
    report('end', $jid, ['ok' => false]);
    throw new JobwireError($message);
}

function flaky_job(?string $jid, int $times): void
{
    report('begin', $jid, ['args' => [$times]]);
    $count = control('INCR', 'jw:' . RUN . ":n:$jid");
    report('end', $jid, ['ok' => $count > $times]);
    if ($count <= $times) {
        throw new JobwireError("time $count of $times");
    }
}

function gate_job(?string $jid, string $name): void
{
    report('begin', $jid, ['args' => [$name]]);
    control('BLPOP', 'jw:' . RUN . ":gate:$name", '0');
    report('end', $jid, ['ok' => true]);
}

function spawn_job(?string $jid, stdClass $job): void
{
    report('begin', $jid, ['args' => [$job]]);
    push($job);
    report('end', $jid, ['ok' => true]);
}

try {
    start(JOBS);
} catch (NotFilledIn) {
    fwrite(STDERR, "worker.php: fill in `start`\n");
    exit(1);
}
