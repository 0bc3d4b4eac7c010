"""`jobwire conform init`: the generated adapter runs unchanged, and has one gap to fill."""

from __future__ import annotations

import json
import os
import pty
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from jobwire_conformance import config, data
from jobwire_conformance.data import CLAIMS
from jobwire_conformance.errors import Usage
from jobwire_conformance.setup import init

ROOT = Path(__file__).resolve().parents[3]
INTERPRETERS = {"python": "python3", "ruby": "ruby", "javascript": "node", "shell": "sh"}
REQUESTS = [
    {"id": 1, "op": "hello", "driver": 1, "redis_url": "redis://127.0.0.1:1/0"},
    {"id": 2, "op": "push", "job": {"class": "JobwireEcho", "args": [{"id": 9, "op": "bye"}, "é"]}},
    {"id": 3, "op": "inspect", "what": "queues"},
    {"id": 40, "op": "bye"},
]


@pytest.fixture(autouse=True)
def _python(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let `python3` in the adapters' commands be the one that runs the tests."""
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")


def made(directory: Path, language: str, *claims: str) -> config.Config:
    init.write(init.AdapterPlan(directory, 'a "name"', language, claims or ("client/core",), "7.3"))
    return config.load(directory)


def command(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "jobwire", "conform", *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": f"{ROOT}/python:{ROOT}/conformance"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
    )


def talk(program: list[str], directory: Path) -> tuple[list[dict[str, object]], str]:
    """Return the answers of a driver, and its standard error."""
    lines = "".join(json.dumps(each, separators=(",", ":")) + "\n" for each in REQUESTS)
    done = subprocess.run(
        program, cwd=directory, input=lines, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()], done.stderr


def holds_out(answers: list[dict[str, object]], errors: str) -> None:
    """Check a generated driver: it answers hello, and "unsupported" to all other requests."""
    schema = data.schema("driver")
    response = Draft202012Validator({"$ref": "#/$defs/response", "$defs": schema["$defs"]})
    for answer in answers:
        response.validate(answer)
    assert [answer["id"] for answer in answers] == [1, 2, 3, 40]
    assert answers[0]["ok"] == {"driver": 1, "version": "0", "ops": ["push"]}
    assert answers[1:3] == [{"id": 2, "unsupported": True}, {"id": 3, "unsupported": True}]
    assert answers[3]["ok"] == {}
    assert "fill in" in errors


def has_gap(program: list[str], directory: Path) -> None:
    done = subprocess.run(program, cwd=directory, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert "fill in" in done.stderr


@pytest.mark.parametrize("language", init.LANGUAGES)
def test_the_settings_are_what_the_suite_reads(language: str, tmp_path: Path) -> None:
    settings = made(tmp_path, language, "client/core", "worker/retry")
    assert (settings.name, settings.language) == ('a "name"', language)
    assert settings.generation == "7.3"
    assert settings.claims == ("client/core", "worker/core", "worker/retry")
    text = (tmp_path / "conformance.toml").read_text()
    assert all(f'"{claim}",' in text for claim in CLAIMS)


@pytest.mark.parametrize("language", INTERPRETERS)
def test_a_script_runs_as_it_was_generated(language: str, tmp_path: Path) -> None:
    if shutil.which(INTERPRETERS[language]) is None:
        pytest.skip(f"{INTERPRETERS[language]} is not on PATH")
    settings = made(tmp_path, language)
    assert settings.driver is not None
    assert settings.worker is not None
    holds_out(*talk([*settings.driver.command], tmp_path))
    has_gap([*settings.worker.command], tmp_path)


@pytest.mark.thorough
def test_go_runs_as_it_was_generated(tmp_path: Path) -> None:
    if shutil.which("go") is None:
        pytest.skip("go is not on PATH")
    settings = made(tmp_path, "go")
    (tmp_path / "go.mod").write_text("module example.com/adapter\n")
    build(init.LANGUAGES["go"].build, tmp_path, GOFLAGS="-mod=mod", GOPROXY="off")
    assert settings.driver is not None
    assert settings.worker is not None
    holds_out(*talk([*settings.driver.command], tmp_path))
    has_gap([*settings.worker.command], tmp_path)


def test_rust_runs_as_it_was_generated(tmp_path: Path) -> None:
    if shutil.which("cargo") is None:
        pytest.skip("cargo is not on PATH")
    settings = made(tmp_path, "rust")
    crate(tmp_path)
    build(init.LANGUAGES["rust"].build, tmp_path, CARGO_NET_OFFLINE="true", RUSTFLAGS="-Dwarnings")
    assert settings.driver is not None
    assert settings.worker is not None
    holds_out(*talk([*settings.driver.command], tmp_path))
    has_gap([*settings.worker.command], tmp_path)


def crate(directory: Path) -> None:
    (directory / "Cargo.toml").write_text(
        '[package]\nname = "adapter"\nversion = "0.1.0"\nedition = "2021"\n'
    )
    (directory / "src").mkdir()
    (directory / "src" / "lib.rs").write_text("")


def build(line: str, directory: Path, **environment: str) -> None:
    done = subprocess.run(
        line,
        shell=True,
        cwd=directory,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr


# -- filled in

# Code for the gaps: `push` of the driver, `start` and `push` of the worker, and their helpers. It
# is minimal, and talks to Redis directly.
PYTHON_PUSH = """\
    import redis, secrets, time
    now = int(time.time() * 1000)
    item = {"queue": "default", "retry": True, **job, "created_at": now, "enqueued_at": now}
    item = {**item, "jid": secrets.token_hex(12)}
    store = redis.Redis.from_url(REDIS_URL)
    store.sadd("queues", item["queue"])
    store.lpush(f"queue:{item['queue']}", json.dumps(item))
    return item["jid"]
"""
PYTHON_START = """\
    import redis, signal, threading
    over = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: over.set())
    def work():
        store = redis.Redis.from_url(REDIS_URL)
        while not over.is_set():
            if found := store.brpop([f"queue:{queue}" for queue in QUEUES], 1):
                job = json.loads(found[1])
                try:
                    jobs[job["class"]](job["jid"], *job["args"])
                except JobwireError:
                    pass
    threads = [threading.Thread(target=work) for _ in range(CONCURRENCY)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
"""
JAVASCRIPT_PUSH = """\
  const now = Date.now();
  const jid = randomBytes(12).toString("hex");
  const item = { queue: "default", retry: true, ...job, jid, created_at: now, enqueued_at: now };
  await redis("SADD", "queues", item.queue);
  await redis("LPUSH", `queue:${item.queue}`, JSON.stringify(item));
  return jid;
"""
JAVASCRIPT_START = """\
  let over = false;
  process.on("SIGTERM", () => { over = true; });
  const work = async () => {
    while (!over) {
      const payload = await redis("RPOP", `queue:${QUEUES[0]}`);
      if (payload === null) {
        await new Promise((resolve) => setTimeout(resolve, 20));
        continue;
      }
      const job = JSON.parse(payload);
      await jobs[job.class](job.jid, ...job.args).catch((error) => {
        if (!(error instanceof JobwireError)) throw error;
      });
    }
  };
  await Promise.all(Array.from({ length: CONCURRENCY }, work));
"""
JAVASCRIPT_MORE = """
import { randomBytes } from "node:crypto";
import { connect as dial } from "node:net";

function redis(...words) {
  const { port, hostname } = new URL(REDIS_URL);
  const frame = words.map((word) => `$${Buffer.byteLength(word)}\\r\\n${word}\\r\\n`).join("");
  return new Promise((resolve, reject) => {
    const connection = dial(Number(port), hostname).setEncoding("utf8").on("error", reject);
    let said = "";
    connection.on("data", (data) => {
      said += data;
      const lines = said.split("\\r\\n");
      const whole = said.startsWith("$") && lines[0] !== "$-1" ? 3 : 2;
      if (lines.length < whole) return;
      connection.destroy();
      resolve(lines[0] === "$-1" ? null : lines[whole - 2]);
    });
    connection.write(`*${words.length}\\r\\n${frame}`);
  });
}
"""
# The driver's job is a map; the worker's job is one text, which is first decoded into a map.
GO_PUSH = """\
	item := map[string]any{"queue": "default", "retry": true}
	for name, value := range given {
		item[name] = value
	}
	now, random := time.Now().UnixMilli(), make([]byte, 12)
	rand.Read(random)
	jid := hex.EncodeToString(random)
	item["jid"], item["created_at"], item["enqueued_at"] = jid, now, now
	queue := fmt.Sprint(item["queue"])
	if text, ok := item["queue"].(json.RawMessage); ok {
		queue = strings.Trim(string(text), `"`)
	}
	payload, err := json.Marshal(item)
	if err == nil {
		redis("SADD", "queues", queue)
		redis("LPUSH", "queue:"+queue, string(payload))
	}
"""
GO_START = """\
	over := make(chan os.Signal, 1)
	signal.Notify(over, syscall.SIGTERM)
	count, _ := strconv.Atoi(concurrency)
	for ; count > 0; count-- {
		go func() {
			for {
				payload := redis("RPOP", "queue:"+queues[0])
				if payload == "" {
					time.Sleep(20 * time.Millisecond)
					continue
				}
				var job struct {
					Class string
					Jid   string
					Args  []json.RawMessage
				}
				if err := json.Unmarshal([]byte(payload), &job); err != nil {
					panic(err)
				}
				jobs[job.Class](job.Jid, job.Args)
			}
		}()
	}
	<-over
	return nil
"""
GO_MORE = """
// redis returns the reply to a command, empty if there is none.
func redis(words ...string) string {
	there, err := url.Parse(redisURL)
	if err != nil {
		panic(err)
	}
	connection, err := net.Dial("tcp", there.Host)
	if err != nil {
		panic(err)
	}
	defer connection.Close()
	fmt.Fprintf(connection, "*%d\\r\\n", len(words))
	for _, word := range words {
		fmt.Fprintf(connection, "$%d\\r\\n%s\\r\\n", len(word), word)
	}
	replies := bufio.NewReader(connection)
	line, err := replies.ReadString('\\n')
	if err != nil || line[0] == '-' {
		panic(fmt.Sprint(line, err))
	}
	size, _ := strconv.Atoi(strings.TrimSpace(line[1:]))
	if line[0] != '$' || size < 0 {
		return ""
	}
	found := make([]byte, size)
	if _, err := io.ReadFull(replies, found); err != nil {
		panic(err)
	}
	return string(found)
}
"""
GO_IMPORTS = ("crypto/rand", "encoding/hex", "net", "net/url", "strconv", "strings", "time")
# Without a JSON library, because the doctor sends no quotes in names and classes.
RUST_PUSH = """\
    let queue = between(job, r#""queue":""#, "\\"");
    let mut bytes = [0; 12];
    let mut random = std::fs::File::open("/dev/urandom").unwrap();
    std::io::Read::read_exact(&mut random, &mut bytes).unwrap();
    let jid: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let payload = format!(r#"{{"jid":"{jid}",{}"#, job.trim_start_matches('{'));
    redis(&["LPUSH", &format!("queue:{queue}"), &payload]);
"""
RUST_START = """\
    let count: usize = setting("CONCURRENCY", "1").parse().unwrap();
    let work = || loop {
        let job = redis(&["RPOP", &format!("queue:{}", setting("QUEUES", "default"))]);
        if job.is_empty() {
            std::thread::sleep(std::time::Duration::from_millis(20));
            continue;
        }
        let class = between(&job, r#""class":""#, "\\"");
        let jid = between(&job, r#""jid":""#, "\\"");
        let from = job.find(r#""args":"#).unwrap() + 7;
        let mut depth = 0;
        let length = job[from..].find(|c| {
            depth += i32::from("[{".contains(c)) - i32::from("]}".contains(c));
            depth == 0
        });
        let args = &job[from..=from + length.unwrap()];
        let first = args.trim_matches(&['[', ']', '"'][..]);
        let _ = perform(class, jid, args, first);
    };
    // The signal ends it, as it has no jobs in hand that would have to be put back.
    std::thread::scope(|all| {
        for _ in 0..count {
            all.spawn(work);
        }
    });
    Ok(())
"""
RUST_MORE = """
fn between<'a>(text: &'a str, before: &str, after: &str) -> &'a str {
    text.split_once(before).unwrap().1.split_once(after).unwrap().0
}

fn redis(words: &[&str]) -> String {
    use std::io::Read;
    let url = env::var("JOBWIRE_REDIS_URL").unwrap();
    let address = url.trim_start_matches("redis://").split('/').next().unwrap();
    let mut connection = std::net::TcpStream::connect(address).unwrap();
    let mut frame = format!("*{}\\r\\n", words.len());
    for word in words {
        frame += &format!("${}\\r\\n{word}\\r\\n", word.len());
    }
    connection.write_all(frame.as_bytes()).unwrap();
    let mut replies = io::BufReader::new(connection);
    let mut line = String::new();
    replies.read_line(&mut line).unwrap();
    let size: i64 = line[1..].trim().parse().unwrap_or(0);
    if !line.starts_with('$') || size < 0 {
        return String::new();
    }
    let mut found = vec![0; size as usize];
    replies.read_exact(&mut found).unwrap();
    String::from_utf8(found).unwrap()
}
"""
SHELL_PUSH = """\
  job=${1#*'"job":{'} job=${job%'}'}
  queue=${job##*'"queue":"'} queue=${queue%%'"'*}
  jid=$(od -An -N12 -tx1 /dev/urandom | tr -d ' \\n')
  printf '{"jid":"%s",%s' "$jid" "$job" |
    CLI -u "$JOBWIRE_REDIS_URL" -x LPUSH "queue:$queue" >&2 && echo "$jid"
"""


def fill(path: Path, gap: str, *written: str, more: str = "") -> None:
    """Replace the gaps by these texts, in order."""
    text = path.read_text()
    assert text.count(gap) == len(written)
    for each in written:
        text = text.replace(gap, each, 1)
    path.write_text(text + more)


def diagnosis(directory: Path) -> tuple[int, dict[str, dict[str, str]]]:
    """Return the exit status of `doctor`, and the result of each of its checks."""
    done = command("doctor", directory, "--patience", "30", "--json")
    return done.returncode, {item["what"]: item for item in json.loads(done.stdout)}


@pytest.mark.parametrize("language", ["python", "javascript", "shell"])
def test_the_doctor_says_which_part_is_to_be_filled_in(language: str, tmp_path: Path) -> None:
    if shutil.which(INTERPRETERS[language]) is None:
        pytest.skip(f"{INTERPRETERS[language]} is not on PATH")
    settings = made(tmp_path, language, "client/core", "worker/core")
    assert settings.driver is not None
    assert settings.worker is not None
    status, report = diagnosis(tmp_path)
    bad = {what for what, item in report.items() if item["state"] == "bad"}
    assert (status, bad) == (3, {"driver pushes", "worker"})
    driver, worker = (Path(each.command[1]).name for each in (settings.driver, settings.worker))
    assert report["driver pushes"]["advice"].startswith("fill in `push`; ")
    assert f"{driver}: fill in `push`" in report["driver pushes"]["advice"]
    assert "exit status 1 before its first fetch" in report["worker"]["seen"]
    gap = "the line with `exec`" if language == "shell" else "`start`"
    assert f"{worker}: fill in {gap}" in report["worker"]["advice"]


@pytest.mark.thorough
def test_python_filled_in_runs_its_jobs(tmp_path: Path) -> None:
    made(tmp_path, "python", "client/core", "worker/core")
    gap, there = "    raise NotImplementedError\n", tmp_path / "jobwire-adapter"
    fill(there / "driver.py", gap, PYTHON_PUSH)
    fill(there / "worker.py", gap, PYTHON_START, PYTHON_PUSH)
    in_order(tmp_path)


def test_javascript_filled_in_runs_its_jobs(tmp_path: Path) -> None:
    if shutil.which("node") is None:
        pytest.skip("node is not on PATH")
    made(tmp_path, "javascript", "client/core", "worker/core")
    gap, there = "  throw new NotFilledIn();\n", tmp_path / "jobwire-adapter"
    fill(there / "driver.mjs", gap, JAVASCRIPT_PUSH, more=JAVASCRIPT_MORE)
    fill(there / "worker.mjs", gap, JAVASCRIPT_START, JAVASCRIPT_PUSH, more=JAVASCRIPT_MORE)
    in_order(tmp_path)


@pytest.mark.thorough
def test_go_filled_in_runs_its_jobs(tmp_path: Path) -> None:
    if shutil.which("go") is None:
        pytest.skip("go is not on PATH")
    made(tmp_path, "go", "client/core", "worker/core")
    (tmp_path / "go.mod").write_text("module example.com/adapter\n")
    driver, worker = (
        tmp_path / "jobwire-adapter" / f"jw-{w}" / "main.go" for w in ("driver", "worker")
    )
    given = "\tgiven := r.Job\n"
    fill(driver, '\treturn "", errNotYet\n', f"{given}{GO_PUSH}\treturn jid, err\n", more=GO_MORE)
    decoded = "\tvar given map[string]json.RawMessage\n\tjson.Unmarshal(job, &given)\n"
    gaps = GO_START, f"{decoded}{GO_PUSH}\treturn err\n"
    fill(worker, "\treturn errNotYet\n", *gaps, more=GO_MORE)
    for path, more in ((driver, GO_IMPORTS), (worker, (*GO_IMPORTS, "os/signal", "syscall"))):
        text = path.read_text()
        lines = "".join(f'\t"{each}"\n' for each in {*more} if f'\t"{each}"\n' not in text)
        path.write_text(text.replace("import (\n", f"import (\n{lines}", 1))
    build(init.LANGUAGES["go"].build, tmp_path, GOFLAGS="-mod=mod", GOPROXY="off")
    in_order(tmp_path)


def test_rust_filled_in_runs_its_jobs(tmp_path: Path) -> None:
    if shutil.which("cargo") is None:
        pytest.skip("cargo is not on PATH")
    made(tmp_path, "rust", "client/core", "worker/core")
    crate(tmp_path)
    driver, worker = (tmp_path / "examples" / f"jw_{which}.rs" for which in ("driver", "worker"))
    gap = "    let _ = request;\n    Err(Problem::NotYet)\n"
    given = '    let job = &request[request.find(r#""job":"#).unwrap() + 6..request.len() - 1];\n'
    fill(driver, gap, f"{given}{RUST_PUSH}    Ok(jid)\n", more=f"{RUST_MORE}use std::env;\n")
    fill(worker, '    Err("fill in `start`".to_string())\n', RUST_START, more=RUST_MORE)
    gap = '    Err(JobwireError(format!("fill in `push` for {job}")))\n'
    fill(worker, gap, f"{RUST_PUSH}    Ok(())\n")
    build(init.LANGUAGES["rust"].build, tmp_path, CARGO_NET_OFFLINE="true")
    in_order(tmp_path)


def test_shell_filled_in_pushes_and_starts_a_worker(tmp_path: Path) -> None:
    """Its jobs are in the language of the worker that the shell starts, here Python."""
    cli = shutil.which("redis-cli") or shutil.which("valkey-cli")
    if cli is None:
        pytest.skip("neither redis-cli nor valkey-cli is on PATH")
    made(tmp_path, "shell", "client/core", "worker/core")
    there, other = tmp_path / "jobwire-adapter", tmp_path / "other"
    gap = "  echo 'driver.sh: fill in `push`' >&2\n  return 64\n"
    fill(there / "driver.sh", gap, SHELL_PUSH.replace("CLI", cli))
    made(other, "python")
    worker = other / "jobwire-adapter" / "worker.py"
    fill(worker, "    raise NotImplementedError\n", PYTHON_START, PYTHON_PUSH)
    last = "echo 'worker.sh: fill in the line with `exec`' >&2\nexit 1\n"
    fill(there / "worker.sh", last, f"exec python3 {worker}\n")
    in_order(tmp_path)


def in_order(directory: Path) -> None:
    """Check that the doctor finds no fault after it pushed and ran every job of a skeleton."""
    status, report = diagnosis(directory)
    assert {what: item for what, item in report.items() if item["state"] == "bad"} == {}
    assert status == 0
    jobs = [f"worker runs Jobwire{job}" for job in ("Echo", "Fail", "Flaky", "Gate", "Spawn")]
    for what in ("driver pushes", "driver uses JOBWIRE_REDIS_URL", *jobs):
        assert report[what]["state"] == "ok", report[what]


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    kept = tmp_path / "jobwire-adapter" / "worker.sh"
    kept.parent.mkdir()
    kept.write_text("mine")
    done = command("init", tmp_path, "--language", "shell")
    assert (done.returncode, "worker.sh" in done.stderr) == (64, True)
    assert kept.read_text() == "mine"
    assert not (tmp_path / "conformance.toml").exists()
    with pytest.raises(Usage, match="overwritten"):
        made(tmp_path, "shell")


def test_the_language_is_guessed_or_asked_for(tmp_path: Path) -> None:
    done = command("init", tmp_path)
    assert (done.returncode, "--language" in done.stderr) == (64, True)
    (tmp_path / "Gemfile").write_text("")
    done = command("init", tmp_path, "--claim", "worker/core")
    assert (done.returncode, done.stderr) == (0, "")
    assert config.load(tmp_path).language == "ruby"
    assert "fill in `start` in jobwire-adapter/worker.rb" in done.stdout
    assert "jobwire conform check worker/core" in done.stdout


@pytest.mark.parametrize(
    "arguments", [["--language", "cobol"], ["--claim", "client/cor"], ["--generation", "9"]]
)
def test_wrong_usage_writes_nothing(arguments: list[str], tmp_path: Path) -> None:
    assert command("init", tmp_path, *arguments).returncode == 64
    assert not [*tmp_path.iterdir()]


def test_on_a_terminal_it_asks(tmp_path: Path) -> None:
    parent, child = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "jobwire", "conform", "init", tmp_path],
        env={**os.environ, "PYTHONPATH": f"{ROOT}/python:{ROOT}/conformance"},
        stdin=child,
        stdout=child,
        stderr=child,
        start_new_session=True,
    )
    os.close(child)
    os.write(parent, b"my jobs\nshell\nclient/bulk\n7.3\n")
    shown = b""
    try:
        while more := os.read(parent, 4096):
            shown += more
    except OSError:
        pass  # a terminal ends a process in this way
    finally:
        os.close(parent)
    assert process.wait(60) == 0, shown
    settings = config.load(tmp_path)
    assert (settings.name, settings.language) == ("my jobs", "shell")
    assert settings.claims == ("client/core", "client/bulk")
    assert settings.generation == "7.3"
