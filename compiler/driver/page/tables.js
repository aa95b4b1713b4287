'use strict';
// The table of kernels, which sorts by every column, the table of neighbours with their reasons, and the steps of a model whose
// course is decided at run time.

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

function courseStep(step, pick) {
  const values = `${step.inputs.join(', ')} → ${step.outputs.join(', ')}`;
  const nested = (title, steps) => el('li', {}, title, courseList(steps, pick));
  if (step.kind === 'part') {
    const [first, end] = step.launches;
    const kernels = Array.from({length: end - first}, (_, k) => el('button', {type: 'button', class: 'link', 'data-group': first + k, onclick: () => pick(first + k)},
      groupTitle(first + k)));
    return el('li', {class: 'step'}, step.reads.length ? `The host reads ${step.reads.join(', ')}, whose elements are sizes. ` : '', `Part ${step.part}: `,
      ...kernels.flatMap((k, i) => (i ? [', ', k] : [k])), el('span', {class: 'quiet'}, ` ${values}`));
  }
  const reads = [...step.reads, ...(step.kind === 'loop' ? ['the condition of each turn'] : [])].join(' and ');
  const inner = step.kind === 'loop' ? [nested('body', step.body)] : [nested('then', step.then), nested('else', step.else)];
  return el('li', {class: 'step'}, `${step.name}: the host reads ${reads}. `, el('span', {class: 'quiet'}, values), el('ul', {}, ...inner));
}
const courseList = (steps, pick) => el('ol', {}, ...steps.map((step) => courseStep(step, pick)));

/** What runs when, and what the host looks at before. */
function drawCourse(host, pick) {
  host.replaceChildren(el('div', {class: 'tools'}, 'The model decides its course while it runs. Figures count one run of every part.'),
    courseList(report.course || [], pick));
}
