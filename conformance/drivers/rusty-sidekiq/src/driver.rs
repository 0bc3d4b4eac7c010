//! The driver: pushes the jobs of requests, which are lines of JSON.

use std::io::{BufRead, Write};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::{json, Value};
use sidekiq::{EnqueueOpts, RedisPool, UnitOfWork};

/// Values that a caller cannot write in Rust count as refused: class and queue are strings. Unknown
/// options are unsupported.
fn options(job: &serde_json::Map<String, Value>) -> Result<(EnqueueOpts, String, Value), Value> {
    let wrong = |name: &str| Err(refused("rejected", &format!("{name} has a wrong type")));
    let mut options = sidekiq::opts();
    let mut class = None;
    let mut args = Value::Null;
    for (name, value) in job {
        match (name.as_str(), value) {
            ("class", Value::String(text)) => class = Some(text.clone()),
            ("args", _) => args = value.clone(),
            ("queue", Value::String(text)) => options = options.queue(text.clone()),
            ("retry_queue", Value::String(text)) => options = options.retry_queue(text.clone()),
            ("retry", Value::Bool(retry)) => options = options.retry(*retry),
            ("retry", Value::Number(count)) if count.as_u64().is_some() => {
                options = options.retry(count.as_u64().unwrap_or_default() as usize)
            }
            ("class" | "queue" | "retry_queue" | "retry", _) => return wrong(name),
            _ => return Err(json!({"unsupported": true})),
        }
    }
    match class {
        Some(class) => Ok((options, class, args)),
        None => wrong("class"),
    }
}

fn refused(kind: &str, message: &str) -> Value {
    json!({"error": {"kind": kind, "message": message}})
}

/// Return the delay of a request, because the client schedules delays, not times.
fn delay(request: &Value) -> Result<Option<Duration>, Value> {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .expect("a clock")
        .as_secs_f64();
    let (value, now) = match (request.get("at"), request.get("in")) {
        (Some(at), _) => (at, now),
        (_, Some(after)) => (
            after,
            if after.as_f64().unwrap_or(0.0) < 1e9 {
                0.0
            } else {
                now
            },
        ),
        _ => return Ok(None),
    };
    let seconds = value.as_f64().map(|seconds| (seconds - now).max(0.0));
    match seconds.map(Duration::try_from_secs_f64) {
        Some(Ok(delay)) => Ok(Some(delay)),
        _ => Err(refused("rejected", "the time must be a number in range")),
    }
}

async fn push(redis: &RedisPool, request: &Value) -> Result<Value, Value> {
    let job = request["job"]
        .as_object()
        .ok_or(json!({"unsupported": true}))?;
    let (options, class, args) = options(job)?;
    let job = options
        .create_job(class, args)
        .map_err(|error| refused("rejected", &error.to_string()))?;
    let jid = job.jid.clone();
    let mut unit = UnitOfWork::from_job(job);
    match delay(request)? {
        Some(delay) => unit.schedule(redis, delay).await,
        None => unit.enqueue(redis).await,
    }
    .map_err(|error| refused("unknown", &error.to_string()))?;
    Ok(json!({"ok": {"jid": jid}}))
}

pub async fn run(redis: RedisPool) {
    for line in std::io::stdin().lock().lines() {
        let line = line.expect("a line");
        // serde_json refuses 1e400, which a caller in Rust could not write either.
        let request: Value = serde_json::from_str(&line).unwrap_or_else(|error| {
            let id = line.trim_start_matches("{\"id\":").split(',').next();
            let id: u64 = id.and_then(|id| id.parse().ok()).expect("an id");
            json!({"id": id, "op": "cannot be read", "problem": error.to_string()})
        });
        let op = request["op"].as_str().unwrap_or_default().to_owned();
        let mut answer = match op.as_str() {
            "hello" => json!({"ok": {"driver": 1, "version": "0.14.0", "ops": ["push"]}}),
            "push" => push(&redis, &request).await.unwrap_or_else(|refusal| refusal),
            "bye" => json!({"ok": {}}),
            "cannot be read" => refused("rejected", request["problem"].as_str().unwrap_or_default()),
            _ => json!({"unsupported": true}),
        };
        answer["id"] = request["id"].clone();
        println!("{answer}");
        std::io::stdout().flush().expect("standard output");
        if op == "bye" {
            break;
        }
    }
}
