'use strict';
// Puts the parts together: selection, search, tabs, keys, theme.

const byId = (id) => document.getElementById(id);
const selection = {group: -1, node: -1};  // of the report's groups; of the model's nodes
const isDrawn = (n) => n.kind !== 'node' || n.groups.length > 0;

const beforeView = new GraphView(byId('pane-before'), graphs.before, {
  colour: (n) => (n.kind !== 'node' ? 'port' : n.groups.length ? kindOf(mainGroup(n.groups)) : 'none'),
  title: (n) => (n.kind === 'node' ? n.op : n.label), note: (n) => (n.kind === 'node' ? n.label : n.type), pick: (i) => pickNode(i, false),
});
const afterView = new GraphView(byId('pane-after'), graphs.after, {
  colour: (n) => (n.kind === 'group' ? kindOf(n.groups[0]) : n.kind === 'join' ? 'join' : 'port'),
  title: (n) => (n.kind === 'group' ? groupTitle(n.groups[0]) : n.label || n.op), note: (n) => n.type,
  pick: (i) => pickGroup(i < 0 || graphs.after.nodes[i].kind !== 'group' ? -1 : graphs.after.nodes[i].groups[0], false),
});

function pickGroup(k, moveAfter = true) {
  selection.group = k;
  selection.node = -1;
  beforeView.select(k < 0 ? [] : nodesOfGroup[k], k >= 0);
  afterView.select(k < 0 ? [] : [nodeOfGroup[k]], k >= 0 && moveAfter);
  if (k < 0) showNothing(byId('panel'));
  else showGroup(byId('panel'), k, pickGroup, pickNode);
  showSelection();
}
function pickNode(i, moveBefore = true) {
  if (i < 0) return pickGroup(-1);
  const n = graphs.before.nodes[i];
  if (n.groups.length === 1) {  // the node's kernel is what there is to say about it
    pickGroup(n.groups[0]);
    selection.node = i;
    if (moveBefore) beforeView.reveal([i]);
    return undefined;
  }
  if (!isDrawn(n) && !byId('show-folded').checked) { byId('show-folded').checked = true; arrangeModel(); }
  selection.group = -1;
  selection.node = i;
  beforeView.select([i], moveBefore);
  afterView.select(n.groups.map((k) => nodeOfGroup[k]), true);
  showNode(byId('panel'), i, pickGroup);
  return showSelection();
}
/** Rows, dots and rectangles of the selected kernel. */
function showSelection() {
  for (const e of document.querySelectorAll('[data-group].selected')) e.classList.remove('selected');
  if (selection.group >= 0)
    for (const e of document.querySelectorAll(`[data-group="${selection.group}"]`)) e.classList.add('selected');
  const row = document.querySelector('#tab-kernels tr.selected');
  if (row) row.scrollIntoView({block: 'nearest'});
  if (byId('tab-memory').moveCursor) byId('tab-memory').moveCursor(selection.group);
}

// ---- search ------------------------------------------------------------------------------------------------------------
const kShownResults = 60;
const haystack = [
  ...report.groups.map((g, k) => ({group: k, text: [k, g.name, g.kind, ...g.forms.map((f) => f.name), ...g.nodes].join('\n').toLowerCase()})),
  ...graphs.before.nodes.map((n, i) => ({node: i, text: `${n.op}\n${n.label}\n${n.type}`.toLowerCase()})),
];
let hits = [], chosen = 0;

function search() {
  const words = byId('search').value.toLowerCase().split(/\s+/).filter((w) => w);
  hits = words.length ? haystack.filter((h) => words.every((w) => h.text.includes(w))) : [];
  chosen = 0;
  const nodes = hits.filter((h) => h.node !== undefined).map((h) => h.node), groups = hits.filter((h) => h.group !== undefined).map((h) => h.group);
  beforeView.mark(nodes);
  afterView.mark(groups.map((k) => nodeOfGroup[k]));
  const list = hits.slice(0, kShownResults).map((h, i) => el('li', {
    role: 'option', 'aria-selected': String(i === 0), onmousedown: (e) => { e.preventDefault(); take(i); },
  },
    ...(h.group !== undefined ? [el('span', {class: 'what'}, 'kernel'), groupTitle(h.group)]
      : [el('span', {class: 'what'}, graphs.before.nodes[h.node].op), graphs.before.nodes[h.node].label])));
  const total = el('li', {class: 'total'}, `${formatCount(groups.length)} kernels, ${formatCount(nodes.length)} nodes`);
  byId('results').replaceChildren(...list, total);
  byId('results').hidden = !words.length;
  byId('search').setAttribute('aria-expanded', String(!byId('results').hidden));
}
function choose(by) {
  const items = byId('results').querySelectorAll('[role="option"]');
  if (!items.length) return;
  chosen = (chosen + by + items.length) % items.length;
  items.forEach((item, i) => item.setAttribute('aria-selected', String(i === chosen)));
  items[chosen].scrollIntoView({block: 'nearest'});
}
function take(i) {
  const hit = hits[i];
  if (!hit) return;
  byId('results').hidden = true;
  byId('search').blur();
  if (hit.group !== undefined) pickGroup(hit.group);
  else pickNode(hit.node);
}
byId('search').addEventListener('input', search);
byId('search').addEventListener('focus', () => { if (byId('search').value) search(); });
byId('search').addEventListener('blur', () => { byId('results').hidden = true; });
byId('search').addEventListener('keydown', (e) => {
  if (e.key === 'ArrowDown') choose(1);
  else if (e.key === 'ArrowUp') choose(-1);
  else if (e.key === 'Enter') take(chosen);
  else if (e.key === 'Escape') { byId('search').value = ''; search(); byId('search').blur(); }
  else return;
  e.preventDefault();
  e.stopPropagation();
});

// ---- tabs, keys, theme --------------------------------------------------------------------------------------------------
const drawTab = {kernels: drawKernels, roofline: drawRoofline, memory: drawMemory, reasons: drawReasons, course: drawCourse};
function openTab(name) {
  for (const tab of document.querySelectorAll('[role="tab"]')) tab.setAttribute('aria-selected', String(tab.dataset.tab === name));
  for (const panel of document.querySelectorAll('[role="tabpanel"]')) panel.classList.toggle('open', panel.id === 'tab-' + name);
  const host = byId('tab-' + name);
  const chart = name === 'roofline' || name === 'memory';
  if (!host.childElementCount || chart) drawTab[name](host, pickGroup);  // charts take the size that they find
  showSelection();
}
document.querySelectorAll('[role="tab"]').forEach((tab) => tab.addEventListener('click', () => openTab(tab.dataset.tab)));
const openTabName = () => document.querySelector('[role="tab"][aria-selected="true"]').dataset.tab;

document.addEventListener('keydown', (e) => {
  if (e.target === byId('search') || e.ctrlKey || e.metaKey || e.altKey) return;
  const count = report.groups.length;
  if (e.key === '/') byId('search').select(), byId('search').focus();
  else if (e.key === 'Escape') pickGroup(-1);
  else if (e.key === ']' && count) pickGroup((selection.group + 1) % count);
  else if (e.key === '[' && count) pickGroup((Math.max(selection.group, 0) + count - 1) % count);
  else return;
  e.preventDefault();
});

function setTheme(dark) {
  document.documentElement.classList.toggle('dark', dark);
  beforeView.redraw();
  afterView.redraw();
}
byId('theme').addEventListener('click', () => setTheme(!document.documentElement.classList.contains('dark')));
const darkMedia = window.matchMedia('(prefers-color-scheme: dark)');
darkMedia.addEventListener('change', () => setTheme(darkMedia.matches));

let dividing = false;
byId('divider').addEventListener('pointerdown', (e) => { dividing = true; byId('divider').setPointerCapture(e.pointerId); });
byId('divider').addEventListener('pointermove', (e) => {
  if (!dividing) return;
  const box = document.querySelector('main').getBoundingClientRect();
  document.documentElement.style.setProperty('--split', `${Math.round(e.clientY - box.top)}px`);
});
byId('divider').addEventListener('pointerup', () => { dividing = false; openTab(openTabName()); });
window.addEventListener('resize', () => openTab(openTabName()));

// ---- start ---------------------------------------------------------------------------------------------------------------
function arrangeModel() {
  beforeView.arrange((n) => byId('show-folded').checked || isDrawn(n));
}
byId('show-folded').addEventListener('change', arrangeModel);

function start() {
  const file = report.model.split('/');
  document.title = `${file[file.length - 1]} – Ingot`;
  byId('title').textContent = file.slice(-2).join('/');
  byId('title').title = report.model;
  const figures = [['target', `${report.target.name}, ${report.target.precision}`], ['nodes', formatCount(report.nodes)],
    ['kernels', `${report.kernels} (${report.kernels_unfused} unfused)`],
    ['bytes moved', `${formatBytes(report.bytes_before)} → ${formatBytes(report.bytes_after)}`],
    ['floor', formatBytes(report.bytes_floor)], ['operations', formatFlops(report.flops)], ['arena', formatBytes(report.arena_bytes)],
    ['at the roof', formatTime(totalTime)]];
  byId('figures').append(...figures.map(([name, value]) => el('div', {}, el('dt', {}, name), el('dd', {}, value))));
  const used = kinds.filter((kind) => report.groups.some((g, k) => kindOf(k) === kind));
  byId('legend').append(...used.map((kind) => el('span', {}, el('i', {style: `background: var(--${kind})`}), kind)));
  document.querySelector('[data-tab="course"]').hidden = !report.course;
  setTheme(darkMedia.matches);
  arrangeModel();
  afterView.arrange(() => true);
  openTab('kernels');
  pickGroup(-1);
}
start();
// For whoever drives the page: the test, or the console.
window.ingotPage = {report, selection, views: {before: beforeView, after: afterView}, pickGroup, pickNode, hits: () => hits};
