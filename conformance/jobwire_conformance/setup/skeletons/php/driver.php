<?php
// Driver of `jobwire conform`: pushes jobs with our client. Fill in push; the rest is done.
// Standard output is for answers only; logs go to standard error.

declare(strict_types=1);

ini_set('display_errors', 'stderr');
// A warning is an error here, so that a failed write cannot pass for a push.
set_error_handler(function (int $level, string $message, string $file, int $line) {
    if (error_reporting() & $level) throw new ErrorException($message, 0, $level, $file, $line);
});

const VERSION = '0'; // of the implementation
const OPERATIONS = ['push'];
define('REDIS_URL', (string) getenv('JOBWIRE_REDIS_URL'));
define('GENERATION', getenv('JOBWIRE_GENERATION') ?: '8'); // 7: times in seconds, 8: milliseconds

// The client refused the job, and nothing was written.
class Rejected extends Exception {}

// The connection failed. The client cannot know whether the job was written.
class Unknown extends Exception {}

class NotFilledIn extends Exception {}

// Push one job with your client, to REDIS_URL, and return its jid.
//
// `$job` holds `class`, `args` and options under their names in the payload: `queue`, `retry`,
// `tags`. JSON objects are stdClass, so that {} and [] differ. `$at` is the time to run it, in epoch
// seconds; `$in` is seconds from now; both are null for a job that is due at once. `$line` is the
// request as it came, for integers that do not fit PHP. Some requests hold invalid values, on
// purpose. Throw Rejected if your client refuses the job, and Unknown if it cannot know whether the
// job was written. Anything else that is thrown is answered as unknown.
function push(stdClass $job, mixed $at, mixed $in, string $line): ?string
{
    throw new NotFilledIn();
}

// Carry out one request; return the answer without its id.
function perform(string $op, string $line): array
{
    switch ($op) {
        case 'hello':
            return ['ok' => ['driver' => 1, 'version' => VERSION, 'ops' => OPERATIONS]];
        case 'push':
            $request = json_decode($line, false, 100_000, JSON_THROW_ON_ERROR);
            return ['ok' => ['jid' => push($request->job, $request->at ?? null, $request->in ?? null, $line)]];
        case 'bye':
            return ['ok' => new stdClass()];
    }
    return ['unsupported' => true];
}

// Return the answer to one request, without its id. Nothing that is thrown may end the driver.
function answer(string $op, string $line): array
{
    try {
        return perform($op, $line);
    } catch (NotFilledIn) {
        fwrite(STDERR, "driver.php: fill in `push`\n");
        return ['unsupported' => true];
    } catch (Rejected $error) {
        return failure('rejected', $error);
    } catch (Unknown $error) {
        return failure('unknown', $error);
    } catch (Throwable $error) {
        fwrite(STDERR, "$error\n");
        return failure('unknown', $error);
    }
}

function failure(string $kind, Throwable $error): array
{
    return ['error' => ['kind' => $kind, 'message' => get_class($error) . ': ' . $error->getMessage()]];
}

while (($line = fgets(STDIN)) !== false) {
    // Every request begins with id and op, without spaces: {"id":1,"op":"push",...
    if (!preg_match('/^\{"id":(\d+),"op":"(\w+)"/', $line, $begin)) {
        fwrite(STDERR, "driver.php: not a request: $line");
        exit(1);
    }
    $answer = ['id' => (int) $begin[1]] + answer($begin[2], $line);
    fwrite(STDOUT, json_encode($answer, JSON_INVALID_UTF8_SUBSTITUTE) . "\n");
    if ($begin[2] === 'bye') {
        break;
    }
}
