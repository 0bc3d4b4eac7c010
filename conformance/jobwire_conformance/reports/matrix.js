"use strict";
const form = document.getElementById("filter");
const of = (selector, root = document) => [...root.querySelectorAll(selector)];
const fields = [...form.elements].filter((field) => field.name);
const STATUSES = {
  "not-met": ["fail", "blocked", "flaky", "failed", "deviation", "alone", "part"],
  fail: ["fail", "blocked", "flaky", "failed"],
  deviation: ["deviation"],
  warn: ["warn", "stale", "info"],
  missing: ["missing", "part", "none"],
};
const columns = of("article[data-column]");
const claims = document.getElementById("of-claims");
const requirements = document.getElementById("of-requirements");

const fits = (wish, value) => !wish || wish === value;
const among = (wish, values) => !wish || (values || "").split(" ").includes(wish);
const has = (cell, statuses) => statuses.some((status) => cell.classList.contains(`s-${status}`));

// Hides a column of a table: the cells in all rows, and the part of it in the heads above.
const showColumns = (table, shown) => {
  const heads = of("thead tr", table);
  const last = of("th", heads[heads.length - 1]);
  for (const row of [heads[heads.length - 1], ...of("tbody tr", table)]) {
    const cells = of(row.parentElement.tagName === "THEAD" ? "th" : "td", row);
    shown.forEach((is, index) => (cells[index].hidden = !is));
  }
  for (const row of heads.slice(0, -1)) {
    let start = 0;
    for (const head of of("th[scope=colgroup]", row)) {
      head.dataset.span ||= head.colSpan;
      const width = Number(head.dataset.span);
      const left = shown.slice(start, start + width).filter(Boolean).length;
      head.hidden = left === 0;
      head.colSpan = Math.max(left, 1);
      start += width;
    }
  }
  return last;
};

// The name of an implementation stands in the first row of its group that is shown.
const lead = (table) => {
  for (const body of of("tbody", table)) {
    let first = true;
    for (const row of of("tr", body)) {
      row.classList.toggle("leads", !row.hidden && first);
      if (!row.hidden) first = false;
    }
  }
};

const filter = () => {
  const wish = Object.fromEntries(fields.map((field) => [field.name, field.value]));
  const words = wish.words.toLowerCase().split(/\s+/).filter(Boolean);
  const statuses = STATUSES[wish.status];
  const shown = columns.map(
    ({ dataset }) =>
      fits(wish.generation, dataset.generation) &&
      fits(wish.implementation, dataset.implementation) &&
      fits(wish.language, dataset.language),
  );
  for (const node of of("[data-column]")) {
    if (node.tagName !== "TH") node.hidden = !shown[node.dataset.column];
  }
  lead(claims);
  const rows = of("tbody tr", claims).filter((row) => !row.hidden);
  const heads = of("th[data-claim]", claims);
  showColumns(
    claims,
    heads.map(
      ({ dataset }, index) =>
        fits(wish.claim, dataset.claim) &&
        fits(wish.level, dataset.level) &&
        (!statuses || rows.some((row) => has(of("td", row)[index], statuses))),
    ),
  );
  showColumns(requirements, shown);
  const all = of("tbody tr", requirements);
  let count = 0;
  for (const row of all) {
    row.hidden = !(
      words.every((word) => row.dataset.words.includes(word)) &&
      among(wish.claim, row.dataset.claims) &&
      fits(wish.level, row.dataset.level) &&
      (!statuses || of("td", row).some((cell) => !cell.hidden && has(cell, statuses)))
    );
    count += row.hidden ? 0 : 1;
  }
  for (const row of of(".nearest tbody tr")) {
    row.hidden ||= !among(wish.claim, row.dataset.claims) || !fits(wish.level, row.dataset.level);
  }
  for (const gap of of(".gap")) {
    gap.hidden = !among(wish.claim, gap.dataset.claims) || !fits(wish.level, gap.dataset.level);
  }
  const visible = shown.filter(Boolean).length;
  form.querySelector("output").textContent =
    `${count} of ${all.length} requirements, ${visible} of ${columns.length} columns`;
};

const toAddress = () => {
  const query = new URLSearchParams();
  for (const field of fields) if (field.value) query.set(field.name, field.value);
  const text = query.toString();
  history.replaceState(null, "", `${location.pathname}${text ? `?${text}` : ""}${location.hash}`);
};

const fromAddress = () => {
  const query = new URLSearchParams(location.search);
  for (const field of fields) {
    field.value = query.get(field.name) || "";
    if (field.selectedIndex === -1) field.value = ""; // an option that this page does not have
  }
};

const open = () => {
  for (const cell of of(".here")) cell.classList.remove("here");
  let name = location.hash.slice(1);
  try {
    name = decodeURIComponent(name);
  } catch {
    // A name with a lone % is taken as it is.
  }
  const target = name ? document.getElementById(name) : null;
  if (!target) return;
  if (target.closest("[hidden]")) {
    form.reset();
    toAddress();
    filter();
  }
  for (let node = target; node; node = node.parentElement) {
    if (node.tagName === "DETAILS") node.open = true;
  }
  for (const details of of(":scope > th > details", target)) details.open = true;
  if (target.dataset.claim) {
    const index = of("th[data-claim]", claims).indexOf(target);
    for (const row of of("tbody tr", claims)) of("td", row)[index].classList.add("here");
  }
  target.scrollIntoView({ block: target.tagName === "ARTICLE" ? "start" : "center" });
};

form.hidden = false;
form.addEventListener("input", () => {
  filter();
  toAddress();
});
form.addEventListener("reset", () => {
  // The fields are empty only after this event.
  setTimeout(() => {
    filter();
    toAddress();
  });
});
form.addEventListener("submit", (event) => event.preventDefault());
addEventListener("hashchange", open);
fromAddress();
filter();
open();
// The browser itself scrolls to the target at the end, without regard to the heads that stay.
addEventListener("load", () => setTimeout(open));
