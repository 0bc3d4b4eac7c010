//! Driver of `jobwire conform`: pushes jobs with our client. Fill in `push`; the rest is done.
//! Standard output is for answers only; logs go to standard error.
#![allow(dead_code)]

use std::io::{self, BufRead, Write};

const VERSION: &str = "0"; // of the implementation
const OPERATIONS: &str = r#"["push"]"#;

/// Why a push has not been done.
enum Problem {
    /// The client refused: certainly nothing was written.
    Rejected(String),
    /// The connection was lost, or something like that: nobody knows whether it was written.
    Unknown(String),
    /// This is still to be filled in.
    NotYet,
}

/// Push one job with your client, to JOBWIRE_REDIS_URL, and return its jid.
///
/// `request` is one line of JSON, for your JSON library. Its `job` holds `class`, `args` and
/// options by the names that they have in the payload; `at` is the time to run it, in epoch
/// seconds, `in` is seconds from now. Any of it may be nonsense, on purpose.
fn push(request: &str) -> Result<String, Problem> {
    let _ = request;
    Err(Problem::NotYet)
}

/// The answer to one request, without its id.
fn answer(op: &str, request: &str) -> String {
    match op {
        "hello" => {
            format!(r#""ok":{{"driver":1,"version":"{VERSION}","ops":{OPERATIONS}}}"#)
        }
        "push" => match push(request) {
            Ok(jid) => format!(r#""ok":{{"jid":{}}}"#, quoted(&jid)),
            Err(Problem::Rejected(why)) => failed("rejected", &why),
            Err(Problem::Unknown(why)) => failed("unknown", &why),
            Err(Problem::NotYet) => {
                eprintln!("jw_driver: fill in `push`");
                r#""unsupported":true"#.to_string()
            }
        },
        "bye" => r#""ok":{}"#.to_string(),
        _ => r#""unsupported":true"#.to_string(),
    }
}

fn failed(kind: &str, why: &str) -> String {
    format!(r#""error":{{"kind":"{kind}","message":{}}}"#, quoted(why))
}

/// A text as JSON.
fn quoted(text: &str) -> String {
    let mut found = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => found.extend(['\\', c]),
            c if c < ' ' => found.push_str(&format!("\\u{:04x}", c as u32)),
            c => found.push(c),
        }
    }
    found + "\""
}

fn main() -> io::Result<()> {
    let mut answers = io::stdout();
    for line in io::stdin().lock().lines() {
        let line = line?;
        // Every request begins with these two, without spaces: {"id":1,"op":"push",...
        let between = |begin: &str, end: &str| {
            let rest = line.split_once(begin).map_or("", |(_, rest)| rest);
            rest.split(end).next().unwrap_or("")
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
