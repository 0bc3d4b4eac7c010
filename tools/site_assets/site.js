// The filters of the index of requirements. The address keeps them: ?level=robust&words=lease
function filtered(form) {
  const rows = [...document.querySelectorAll(`#${form.dataset.rows} tbody tr`)]
  const given = new URLSearchParams(location.search)
  for (const field of form.elements) if (field.name && given.has(field.name)) field.value = given.get(field.name)
  const update = () => {
    const words = form.elements.words.value.toLowerCase().split(/\s+/).filter(Boolean)
    const chosen = ['profile', 'level', 'generation'].map((name) => [name, form.elements[name].value])
    let shown = 0
    for (const row of rows) {
      const text = row.textContent.toLowerCase()
      const fits = words.every((word) => text.includes(word)) &&
        chosen.every(([name, value]) => !value || row.dataset[name].split(' ').includes(value))
      row.hidden = !fits
      shown += fits
    }
    form.querySelector('output').value = `${shown} of ${rows.length}`
    const kept = new URLSearchParams([['words', form.elements.words.value], ...chosen].filter(([, value]) => value))
    history.replaceState(history.state, '', `${location.pathname}${kept.size ? `?${kept}` : ''}${location.hash}`)
  }
  form.addEventListener('input', update)
  form.addEventListener('submit', (event) => event.preventDefault())
  form.hidden = false
  update()
}

function prepare() {
  for (const form of document.querySelectorAll('form.filter')) if (form.hidden) filtered(form)
}

// The theme replaces pages without a load; it tells so here.
if (typeof document$ === 'undefined') document.addEventListener('DOMContentLoaded', prepare)
else document$.subscribe(prepare)
