'use strict';
// The table of kernels, which sorts by every column, and the table of neighbours with their reasons.

const totalTime = report.groups.reduce((sum, g) => sum + g.us, 0);
const kColumns = [
  {name: '#', value: (g, k) => k, text: (g, k) => String(k), number: true},
  {name: 'Kernel', value: (g) => g.name, text: (g) => shortName(g.name)},
  {name: 'Kind', value: (g) => g.kind, text: (g) => g.kind, chip: true},
  {name: 'Bytes', value: (g) => g.bytes, text: (g) => formatBytes(g.bytes), number: true},
  {name: 'FLOPs', value: (g) => g.flops, text: (g) => formatFlops(g.flops), number: true},
  {name: 'FLOP/byte', value: intensity, text: (g) => intensity(g).toPrecision(3), number: true},
  {name: 'Estimated time', value: (g) => g.us, text: (g) => formatTime(g.us), number: true, bar: true},
  {name: 'Bound by', value: (g) => g.bound, text: (g) => g.bound},
  {name: 'Stream', value: (g) => g.stream, text: (g) => String(g.stream), number: true},
  {name: 'First node', value: (g) => g.nodes[0] || '', text: (g) => g.nodes[0] || ''},
];

const chipOf = (k) => el('span', {class: 'chip'}, el('i', {style: `background: var(--${kindOf(k)})`}), report.groups[k].kind);

function kernelRow(k, pick) {
  const g = report.groups[k], longest = Math.max(...report.groups.map((o) => o.us), 1e-9);
  return el('tr', {'data-group': k, onclick: () => pick(k)}, ...kColumns.map((c) => {
    const bar = c.bar ? el('span', {class: 'bar', style: `width: ${(60 * g.us / longest).toFixed(1)}px`}) : null;
    return el('td', {class: c.number ? 'number' : 'name', title: c.number ? undefined : c.text(g, k)}, c.chip ? chipOf(k) : c.text(g, k), bar);
  }));
}

function drawKernels(host, pick) {
  const rows = report.groups.map((g, k) => kernelRow(k, pick));
  const body = el('tbody', {}, ...rows);
  let sorted = {column: 0, down: false};
  const sort = (column) => {
    // Large numbers come first, names from A on.
    sorted = {column, down: sorted.column === column ? !sorted.down : !!kColumns[column].number && column !== 0};
    const value = (row) => { const k = Number(row.dataset.group); return kColumns[column].value(report.groups[k], k); };
    const sign = sorted.down ? -1 : 1;
    rows.sort((a, b) => { const p = value(a), q = value(b); return sign * (p < q ? -1 : p > q ? 1 : 0); });
    body.append(...rows);
    heads.forEach((th, i) => (i === column ? th.setAttribute('aria-sort', sorted.down ? 'descending' : 'ascending') : th.removeAttribute('aria-sort')));
  };
  const heads = kColumns.map((c, i) => el('th', {class: c.number ? 'number' : undefined}, el('button', {type: 'button', onclick: () => sort(i)}, c.name)));
  heads[0].setAttribute('aria-sort', 'ascending');
  host.replaceChildren(el('table', {}, el('thead', {}, el('tr', {}, ...heads)), body));
}

function drawReasons(host, pick) {
  const counts = new Map();
  for (const n of report.neighbours) counts.set(n.reason, (counts.get(n.reason) || 0) + 1);
  const ordered = [...counts].sort((a, b) => b[1] - a[1]);
  const chooser = el('select', {'aria-label': 'Reason'}, el('option', {value: ''}, `all reasons (${formatCount(report.neighbours.length)})`),
    ...ordered.map(([reason, n], i) => el('option', {value: String(i)}, `${reason} (${n})`)));
  const link = (k) => el('button', {type: 'button', class: 'link', onclick: () => pick(k)}, groupTitle(k));
  const rows = report.neighbours.map((n) => el('tr', {},
    el('td', {}, link(n.producer)), el('td', {}, link(n.consumer)), el('td', {}, n.reason), el('td', {}, n.value)));
  chooser.addEventListener('change', () => {
    const wanted = chooser.value === '' ? null : ordered[Number(chooser.value)][0];
    report.neighbours.forEach((n, i) => { rows[i].hidden = wanted !== null && n.reason !== wanted; });
  });
  const others = el('details', {}, el('summary', {class: 'tools'}, `Fusions refused on the way, by operator (${formatCount(report.refusals.length)})`),
    el('table', {}, el('tbody', {}, ...report.refusals.map((r) =>
      el('tr', {}, el('td', {}, r.producer), el('td', {}, r.consumer), el('td', {}, r.reason))))));
  host.replaceChildren(el('div', {class: 'tools'}, 'Why neighbouring kernels are two:', chooser),
    el('table', {}, el('thead', {}, el('tr', {}, ...['Writes', 'Reads', 'Reason', 'Value'].map((t) => el('th', {}, t)))), el('tbody', {}, ...rows)), others);
}
