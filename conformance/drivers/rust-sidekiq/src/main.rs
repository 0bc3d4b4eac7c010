//! The driver of the crate `sidekiq`: pushes the jobs of requests, which are lines of JSON.

use std::io::{BufRead, Write};
use std::panic::{catch_unwind, AssertUnwindSafe};

use serde_json::{json, Map, Value};
use sidekiq::{Client, ClientOpts, Job, JobOpts};
use time::{Duration, OffsetDateTime};

fn refused(kind: &str, message: &str) -> Value {
    json!({"error": {"kind": kind, "message": message}})
}

/// Return the error of a value that a caller cannot write in Rust.
fn wrong(name: &str) -> Value {
    refused("rejected", &format!("{name} has a wrong type"))
}

/// Return the class and the options of a request. Options that the library lacks are unsupported,
/// and so is a bool for `retry`, which is a number here.
fn options(job: &Map<String, Value>) -> Result<(String, JobOpts), Value> {
    let mut options = JobOpts::default();
    let mut class = Err(wrong("class"));
    for (name, value) in job {
        match (name.as_str(), value) {
            ("class", Value::String(text)) => class = Ok(text.clone()),
            ("args", _) => {}
            ("queue", Value::String(text)) => options.queue = text.clone(),
            ("jid", Value::String(text)) => options.jid = text.clone(),
            ("retry", Value::Number(count)) => {
                options.retry = count.as_i64().ok_or_else(|| wrong(name))?
            }
            ("retry", Value::Bool(_)) => return Err(json!({"unsupported": true})),
            ("created_at", Value::Number(at)) => {
                options.created_at = at.as_u64().ok_or_else(|| wrong(name))?
            }
            ("enqueued_at", Value::Number(at)) => {
                options.enqueued_at = at.as_u64().ok_or_else(|| wrong(name))?
            }
            ("class" | "queue" | "jid" | "retry" | "created_at" | "enqueued_at", _) => {
                return Err(wrong(name))
            }
            _ => return Err(json!({"unsupported": true})),
        }
    }
    Ok((class?, options))
}

fn job(request: &Value, args: &Value) -> Result<Job, Value> {
    let fields = request["job"].as_object().ok_or_else(|| wrong("job"))?;
    let (class, options) = options(fields)?;
    let args = args.as_array().ok_or_else(|| wrong("args"))?;
    Ok(Job::new(class, args.clone(), options))
}

fn seconds(request: &Value, name: &str) -> Result<Option<f64>, Value> {
    match request.get(name) {
        None => Ok(None),
        Some(value) => value.as_f64().map(Some).ok_or_else(|| wrong(name)),
    }
}

fn push(client: &Client, request: &Value) -> Result<Value, Value> {
    let job = job(request, &request["job"]["args"])?;
    let answer = json!({"ok": {"jid": job.jid}});
    let done = match (seconds(request, "at")?, seconds(request, "in")?) {
        (Some(at), _) => {
            let at = OffsetDateTime::from_unix_timestamp_nanos((at * 1e9) as i128)
                .map_err(|_| wrong("at"))?;
            client.perform_at(at, job)
        }
        (_, Some(after)) => {
            let after = Duration::checked_seconds_f64(after).ok_or_else(|| wrong("in"))?;
            client.perform_in(after, job)
        }
        _ => client.push(job),
    };
    done.map(|()| answer)
        .map_err(|error| refused("unknown", &error.to_string()))
}

fn push_bulk(client: &Client, request: &Value) -> Result<Value, Value> {
    if request.get("at").is_some() || request.get("spread_interval").is_some() {
        return Err(json!({"unsupported": true}));
    }
    let lists = request["args"].as_array().ok_or_else(|| wrong("args"))?;
    let jobs: Vec<Job> = lists
        .iter()
        .map(|args| job(request, args))
        .collect::<Result<_, _>>()?;
    // The library panics if there is no job.
    catch_unwind(AssertUnwindSafe(|| client.push_bulk(&jobs)))
        .map_err(|_| refused("unknown", "the library panicked"))?
        .map_err(|error| refused("unknown", &error.to_string()))?;
    let jids: Vec<&str> = jobs.iter().map(|job| job.jid.as_str()).collect();
    Ok(json!({"ok": {"jids": jids}}))
}

/// The library reads the address of the server from REDIS_URL, and connects at once.
fn connected(client: &mut Option<Client>) -> Result<&Client, Value> {
    if client.is_none() {
        let pool = sidekiq::create_redis_pool()
            .map_err(|error| refused("rejected", &error.to_string()))?;
        *client = Some(Client::new(pool, ClientOpts::default()));
    }
    Ok(client.as_ref().expect("a client"))
}

fn main() {
    let url = std::env::var("JOBWIRE_REDIS_URL").expect("JOBWIRE_REDIS_URL is not set");
    std::env::set_var("REDIS_URL", url);
    let mut client = None;
    for line in std::io::stdin().lock().lines() {
        let line = line.expect("a line");
        // serde_json refuses 1e400, which a caller in Rust could not write either.
        let request: Value = serde_json::from_str(&line).unwrap_or_else(|error| {
            let id = line.trim_start_matches("{\"id\":").split(',').next();
            let id: u64 = id.and_then(|id| id.parse().ok()).expect("an id");
            json!({"id": id, "op": "cannot be read", "problem": error.to_string()})
        });
        let op = request["op"].as_str().unwrap_or_default().to_owned();
        let outcome = match op.as_str() {
            "hello" => Ok(json!({
                "ok": {"driver": 1, "version": "0.14.0", "ops": ["push", "push_bulk"]}
            })),
            "push" => connected(&mut client).and_then(|client| push(client, &request)),
            "push_bulk" => connected(&mut client).and_then(|client| push_bulk(client, &request)),
            "bye" => Ok(json!({"ok": {}})),
            "cannot be read" => {
                let problem = request["problem"].as_str().unwrap_or_default();
                Err(refused("rejected", problem))
            }
            _ => Err(json!({"unsupported": true})),
        };
        let mut answer = outcome.unwrap_or_else(|refusal| refusal);
        answer["id"] = request["id"].clone();
        println!("{answer}");
        std::io::stdout().flush().expect("standard output");
        if op == "bye" {
            break;
        }
    }
}
