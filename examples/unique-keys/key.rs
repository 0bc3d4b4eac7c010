//! Keys of unique jobs (spec/unique.md) in Rust: cargo run < ../../fixtures/vectors/unique-keys.json
use serde_json::{from_reader, from_str, json, Value};
use sha2::{Digest, Sha256};

fn number(text: &str) -> String {
    if !text.contains(['.', 'e', 'E']) {
        return text.to_string();
    }
    let value: f64 = text.parse().unwrap();
    let scientific = format!("{value:e}"); // the shortest digits
    let power: i32 = scientific.split_once('e').unwrap().1.parse().unwrap();
    if !(-5..16).contains(&power) {
        return scientific;
    }
    let plain = value.to_string();
    if plain.contains('.') { plain } else { plain + ".0" }
}

fn canonical(value: &Value) -> String {
    match value {
        Value::Number(it) => number(it.as_str()),
        Value::Array(items) => {
            let parts: Vec<_> = items.iter().map(canonical).collect();
            format!("[{}]", parts.join(","))
        }
        Value::Object(members) => {
            let mut members: Vec<_> = members.iter().collect();
            members.sort_by_key(|member| member.0.as_bytes());
            let pair = |(name, it): &(&String, &Value)| format!("{}:{}", json!(name), canonical(it));
            let parts: Vec<_> = members.iter().map(pair).collect();
            format!("{{{}}}", parts.join(","))
        }
        other => other.to_string(), // strings as PAY-20 and PAY-21 spell them
    }
}

fn main() {
    let vectors: Vec<Value> = from_reader(std::io::stdin()).unwrap();
    for vector in &vectors {
        let value: Value = from_str(vector["json"].as_str().unwrap()).unwrap();
        let text = canonical(&json!([vector["class"], vector["queue"], value]));
        println!("{:x}", Sha256::digest(text));
    }
}
