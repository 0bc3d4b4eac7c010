"use strict";
for (const form of document.querySelectorAll("form.find")) {
  const list = document.getElementById(form.dataset.list);
  const entries = [...list.querySelectorAll("[data-words]")];
  const output = form.querySelector("output");
  const filter = () => {
    const words = form.elements.words.value.toLowerCase().split(/\s+/).filter(Boolean);
    const status = form.elements.status.value;
    const claim = form.elements.claim ? form.elements.claim.value : "";
    let shown = 0;
    for (const entry of entries) {
      const fits =
        words.every((word) => entry.dataset.words.includes(word)) &&
        (!status || entry.dataset.status.split(" ").includes(status)) &&
        (!claim || entry.dataset.claims.split(" ").includes(claim));
      entry.hidden = !fits;
      shown += fits ? 1 : 0;
    }
    output.textContent = `${shown} of ${entries.length}`;
  };
  form.hidden = false;
  form.addEventListener("input", filter);
  form.addEventListener("submit", (event) => event.preventDefault());
  filter();
}
const open = () => {
  const target = location.hash ? document.getElementById(decodeURIComponent(location.hash.slice(1))) : null;
  if (!target) return;
  target.hidden = false;
  if (target.tagName === "DETAILS") target.open = true;
  target.scrollIntoView();
};
addEventListener("hashchange", open);
open();
