//! Driver of `jobwire conform`: pushes jobs with our client. Fill in `push`; the rest is done.
//! Standard output is for answers only; logs go to standard error.
#![allow(dead_code)]

use std::io::{self, BufRead, Write};
use std::panic;

const VERSION: &str = "0"; // of the implementation
const OPERATIONS: &str = r#"["push"]"#;

/// The reason why a push failed.
enum Problem {
    /// The client refused the job, and nothing was written.
    Rejected(String),
    /// The connection failed. The client cannot know whether the job was written.
    Unknown(String),
    /// `push` is not filled in yet.
    NotYet,
}

/// Push one job with your client, to JOBWIRE_REDIS_URL, and return its jid.
///
/// `request` is one line of JSON, for your JSON library. Its `job` holds `class`, `args` and
/// options under their names in the payload. Beside `job` it may have `at`, the time to run it in
/// epoch seconds, or `in`, seconds from now. Some requests hold invalid values, on purpose. A panic is answered as unknown.
fn push(request: &str) -> Result<String, Problem> {
    let _ = request;
    Err(Problem::NotYet)
}

/// Push, and turn a panic into a problem: no error may end the driver.
fn push_safely(request: &str) -> Result<String, Problem> {
    panic::catch_unwind(|| push(request)).unwrap_or_else(|cause| {
        let text = cause.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| cause.downcast_ref::<&str>().copied());
        Err(Problem::Unknown(format!("panic: {}", text.unwrap_or("no text"))))
    })
}

/// The answer to one request, without its id.
fn answer(op: &str, request: &str) -> String {
    match op {
        "hello" => {
            format!(r#""ok":{{"driver":1,"version":"{VERSION}","ops":{OPERATIONS}}}"#)
        }
        "push" => match push_safely(request) {
            Ok(jid) => format!(r#""ok":{{"jid":{}}}"#, quoted(&jid)),
            Err(Problem::Rejected(reason)) => failed("rejected", &reason),
            Err(Problem::Unknown(reason)) => failed("unknown", &reason),
            Err(Problem::NotYet) => {
                eprintln!("jw_driver: fill in `push`");
                r#""unsupported":true"#.to_string()
            }
        },
        "bye" => r#""ok":{}"#.to_string(),
        _ => r#""unsupported":true"#.to_string(),
    }
}

fn failed(kind: &str, reason: &str) -> String {
    format!(r#""error":{{"kind":"{kind}","message":{}}}"#, quoted(reason))
}

/// A text as JSON.
fn quoted(text: &str) -> String {
    let mut json = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => json.extend(['\\', c]),
            c if c < ' ' => json.push_str(&format!("\\u{:04x}", c as u32)),
            c => json.push(c),
        }
    }
    json + "\""
}

fn main() -> io::Result<()> {
    let mut answers = io::stdout();
    for line in io::stdin().lock().lines() {
        let line = line?;
        // Every request begins with id and op, without spaces: {"id":1,"op":"push",...
        let between = |begin: &str, end: &str| {
            let after = line.split_once(begin).map_or("", |(_, after)| after);
            after.split(end).next().unwrap_or("")
        };
        let (id, op) = (between("\"id\":", ","), between("\"op\":\"", "\""));
        writeln!(answers, "{{\"id\":{id},{}}}", answer(op, &line))?;
        answers.flush()?;
        if op == "bye" {
            break;
        }
    }
    Ok(())
}
