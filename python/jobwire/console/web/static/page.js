// Keeps an open page up to date. Every page can be read without it.
"use strict";

(() => {
  const live = document.querySelector("[data-live]");
  const trouble = document.getElementById("trouble");

  const say = (text) => {
    trouble.textContent = text;
    trouble.hidden = text === "";
  };

  // Names each cell by the heading of its column, which a phone shows beside it.
  const label = (element) => {
    for (const table of element.querySelectorAll("table")) {
      const heads = [...table.querySelectorAll("thead th")].map((head) =>
        head.querySelector("input") ? "Select" : head.textContent,
      );
      for (const row of table.querySelectorAll("tbody tr")) {
        [...row.cells].forEach((cell, index) => (cell.dataset.label = heads[index]));
      }
    }
  };

  // Replaces the content of an element; what has the focus keeps it, and open details stay open.
  const replace = (element, html) => {
    const focused = element.contains(document.activeElement) ? document.activeElement.id : "";
    const open = [...element.querySelectorAll("details[open][id]")].map((details) => details.id);
    element.innerHTML = html;
    label(element);
    for (const id of open) {
      document.getElementById(id)?.setAttribute("open", "");
    }
    if (focused) {
      document.getElementById(focused)?.focus({ preventScroll: true });
    }
  };

  const follow = () => {
    const events = new EventSource(location.pathname + location.search);
    events.addEventListener("parts", (event) => {
      for (const [id, html] of Object.entries(JSON.parse(event.data))) {
        if (id === "trouble") {
          say(html);
        } else if (document.getElementById(id)) {
          replace(document.getElementById(id), html);
        }
      }
    });
    events.addEventListener("error", () => {
      // Closed: the server does not update pages, or not so many.
      const closed = events.readyState === EventSource.CLOSED;
      say(closed ? "" : "No connection to the server; trying again.");
    });
    events.addEventListener("open", () => say(""));
    return events;
  };

  label(document);

  // One box ticks all boxes of the list.
  for (const all of document.querySelectorAll("[data-all]")) {
    all.addEventListener("change", () => {
      for (const box of all.closest("form").querySelectorAll(`input[name="${all.dataset.all}"]`)) {
        box.checked = all.checked;
      }
    });
  }

  // The output of a job, as it comes.
  const list = document.querySelector("[data-output]");
  if (list) {
    const items = new EventSource(list.dataset.output);
    const add = (text) => {
      const item = document.createElement("li");
      item.textContent = text;
      list.append(item);
      list.parentElement.hidden = false;
      if (list.children.length > 2000) {
        list.firstElementChild.remove();
      }
      list.scrollTop = list.scrollHeight;
    };
    items.addEventListener("message", (event) => {
      const value = JSON.parse(event.data);
      add(typeof value === "string" ? value : event.data);
    });
    items.addEventListener("gap", (event) => add(`(${event.data} items were removed before)`));
    items.addEventListener("end", () => items.close());
  }

  // A hidden page costs nothing.
  let events = null;
  const turn = () => {
    if (document.hidden) {
      events?.close();
      events = null;
    } else if (live && !events) {
      events = follow();
    }
  };
  document.addEventListener("visibilitychange", turn);
  turn();
})();
