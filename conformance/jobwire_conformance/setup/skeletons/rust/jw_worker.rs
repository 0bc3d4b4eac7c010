//! Worker of `jobwire conform`: our worker with the five standard jobs. Fill in `start`.
#![allow(dead_code)]

use std::io::{self, BufRead, BufReader, Write};
use std::net::TcpStream;
use std::{env, fmt, process};

/// Return a setting of the suite: REDIS_URL, QUEUES (`a:5` has weight 5; without weights: strict),
/// CONCURRENCY, POLL, BEAT and GRACE in seconds, GENERATION (7: times in seconds, 8: milliseconds).
fn setting(name: &str, default: &str) -> String {
    env::var(format!("JOBWIRE_{name}")).unwrap_or_else(|_| default.to_string())
}

/// The error of failing jobs. Its name in `error_class` must be JobwireError.
#[derive(Debug)]
struct JobwireError(String);

impl fmt::Display for JobwireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for JobwireError {}

/// Run your worker until SIGTERM, with the functions of `perform` as its jobs.
fn start() -> Result<(), String> {
    Err("fill in `start`".to_string())
}

/// Push a job with your client. It is an object with class and args, and perhaps queue.
fn push(job: &str) -> Result<(), JobwireError> {
    Err(JobwireError(format!("fill in `push` for {job}")))
}

/// Run a job.
///
/// `args` is the JSON text of all arguments; `first` is the first argument as plain
/// text: a string without quotes and escapes, or a number.
fn perform(class: &str, jid: &str, args: &str, first: &str) -> Result<(), JobwireError> {
    report(jid, &format!(r#""ev":"begin","args":{args}"#));
    let run = setting("RUN", "run");
    let outcome = match class {
        "JobwireFail" => Err(JobwireError(first.to_string())),
        "JobwireFlaky" => {
            let times: i64 = first.parse().unwrap_or(0);
            let count: i64 = control(&["INCR", &format!("jw:{run}:n:{jid}")]).parse().unwrap_or(0);
            if count > times {
                Ok(())
            } else {
                Err(JobwireError(format!("time {count} of {times}")))
            }
        }
        "JobwireGate" => {
            control(&["BLPOP", &format!("jw:{run}:gate:{first}"), "0"]);
            Ok(())
        }
        "JobwireSpawn" => push(args.trim_start_matches('[').trim_end_matches(']')),
        _ => Ok(()), // JobwireEcho
    };
    report(jid, &format!(r#""ev":"end","ok":{}"#, outcome.is_ok()));
    outcome
}

/// Report an event of a job to the suite.
fn report(jid: &str, members: &str) {
    let event = format!(r#"{{"jid":"{jid}",{members}}}"#);
    control(&["RPUSH", &format!("jw:{}:ev", setting("RUN", "run")), &event]);
}

/// Send one command to the control Redis and return the reply, or the last part of it. Your own
/// client does it too.
fn control(words: &[&str]) -> String {
    let url = setting("CONTROL_URL", "redis://127.0.0.1:6379/0");
    let (address, database) = url.trim_start_matches("redis://").split_once('/').unwrap_or((&url, "0"));
    let talk = || -> io::Result<String> {
        let mut connection = TcpStream::connect(address)?;
        let mut frame = format!("SELECT {database}\r\n*{}\r\n", words.len());
        for word in words {
            frame += &format!("${}\r\n{word}\r\n", word.len());
        }
        connection.write_all(frame.as_bytes())?;
        let mut replies = BufReader::new(connection);
        reply(&mut replies)?;
        reply(&mut replies)
    };
    talk().unwrap_or_else(|error| panic!("the control Redis: {error}"))
}

/// Read one reply.
fn reply(replies: &mut impl BufRead) -> io::Result<String> {
    let mut line = String::new();
    replies.read_line(&mut line)?;
    let mut text = line.get(1..).unwrap_or("").trim_end().to_string();
    let size: i64 = text.parse().unwrap_or(0);
    match line.chars().next() {
        Some('$') if size >= 0 => {
            let mut bytes = vec![0; size as usize + 2];
            replies.read_exact(&mut bytes)?;
            text = String::from_utf8_lossy(&bytes[..size as usize]).into_owned();
        }
        Some('*') => {
            for _ in 0..size {
                text = reply(replies)?;
            }
        }
        Some('-') | None => return Err(io::Error::new(io::ErrorKind::Other, line)),
        _ => {}
    }
    Ok(text)
}

fn main() {
    if let Err(problem) = start() {
        eprintln!("jw_worker: {problem}");
        process::exit(1);
    }
}
