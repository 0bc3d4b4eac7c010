// Keys of unique jobs (spec/unique.md) in JavaScript: node key.js < ../../fixtures/vectors/unique-keys.json
//
// JSON.parse would make one kind of number of 1 and 1.0, and lose digits, so numbers stay texts.
const { createHash } = require("crypto");

const number = (text) => {
  if (!/[.eE]/.test(text)) return text;
  const value = Number(text);
  let [digits, exponent] = value.toExponential().split("e"); // the shortest digits
  if (value === 0) return Object.is(value, -0) ? "-0.0" : "0.0";
  const power = Number(exponent);
  if (power < -5 || power >= 16) return `${digits}e${power}`;
  const sign = value < 0 ? "-" : "";
  digits = digits.replace(/[-.]/g, "");
  if (power < 0) return `${sign}0.${"0".repeat(-power - 1)}${digits}`;
  digits = digits.padEnd(power + 2, "0");
  return `${sign}${digits.slice(0, power + 1)}.${digits.slice(power + 1)}`;
};

// JSON.stringify escapes lone surrogates too, which no payload may hold.
const string = (text) => JSON.stringify(text);
const byBytes = (a, b) => Buffer.compare(Buffer.from(a[0]), Buffer.from(b[0]));

function canonical(json) {
  const token = /\s*([[\]{}:,]|"(?:[^"\\]|\\.)*"|[^\s[\]{}:,"]+)/gy;
  const next = () => token.exec(json)[1];
  const items = (end, item) => {
    const found = [];
    for (let word = next(); word !== end; word = next()) found.push(item(word === "," ? next() : word));
    return found;
  };
  const value = (word) => {
    if (word === "[") return `[${items("]", value)}]`;
    if (word === "{") {
      const member = (name) => [JSON.parse(name), (next(), value(next()))];
      const members = items("}", member).sort(byBytes);
      return `{${members.map(([name, text]) => `${string(name)}:${text}`)}}`;
    }
    if (word[0] === '"') return string(JSON.parse(word));
    return /^[-0-9]/.test(word) ? number(word) : word;
  };
  return value(next());
}

const key = (jobClass, queue, json) =>
  createHash("sha256").update(`[${string(jobClass)},${string(queue)},${canonical(json)}]`).digest("hex");

for (const vector of JSON.parse(require("fs").readFileSync(0, "utf8"))) {
  console.log(key(vector.class, vector.queue, vector.json));
}
