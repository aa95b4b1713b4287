'use strict';
// The data of the page, and what every part of it needs: lookups, formats, and making elements. Text from the model only
// ever becomes text nodes, so no name can be markup.
const report = JSON.parse(document.getElementById('data').textContent);
const graphs = report.graphs;
const kinds = ['contraction', 'windows', 'rows', 'chain', 'attention', 'points'];

/** Element `tag` with properties (class, on…, data-…) and children (elements or text). */
function el(tag, properties = {}, ...children) {
  const svg = ['svg', 'g', 'rect', 'circle', 'line', 'path', 'polyline', 'text', 'title'].includes(tag);
  const e = svg ? document.createElementNS('http://www.w3.org/2000/svg', tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name.startsWith('on')) e.addEventListener(name.slice(2), value);
    else if (name === 'style') e.style.cssText = value;
    else if (value !== undefined && value !== false) e.setAttribute(name, value === true ? '' : value);
  }
  e.append(...children.filter((c) => c !== null && c !== undefined));
  return e;
}

function scaled(value, units, step) {
  let u = 0;
  while (Math.abs(value) >= step && u + 1 < units.length) { value /= step; ++u; }
  return (u ? value.toPrecision(3) : String(Math.round(value))) + units[u];
}
const formatBytes = (b) => scaled(b, [' B', ' KB', ' MB', ' GB', ' TB'], 1000);
const formatFlops = (f) => scaled(f, [' ', ' K', ' M', ' G', ' T', ' P'], 1000) + 'FLOP';
const formatCount = (n) => n.toLocaleString('en');
function formatTime(us) {
  if (us >= 1000) return (us / 1000).toPrecision(3) + ' ms';
  return us >= 0.1 ? us.toPrecision(3) + ' µs' : us.toFixed(3) + ' µs';
}
const intensity = (group) => group.flops / Math.max(group.bytes, 1);
const rateOf = (roof) => report.target.roofs.find((r) => r.name === roof).gflops;
/** GFLOP/s that the kernel could reach: its place on the roofline. */
const attainable = (group) => Math.min(intensity(group) * report.target.memory_gbps, rateOf(group.roof));
/** The operators of a kernel's name, without what every kernel of a narrow precision has. */
const shortName = (name) => name.split('_').filter((part) => part !== 'Cast').join(' ') || name;
const groupTitle = (k) => k + ' ' + shortName(report.groups[k].name);

/** A value of the style, for drawings on a canvas. */
const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue('--' + name).trim();
const kindOf = (k) => (kinds.includes(report.groups[k].kind) ? report.groups[k].kind : 'points');

/** Of the groups that hold part of a node, the one that does most of the work. */
const mainGroup = (groups) => groups.reduce((best, k) => (report.groups[k].flops > report.groups[best].flops ? k : best));

/** Nodes of the model that went into each group, and the pairs that it is in. */
const nodesOfGroup = report.groups.map(() => []);
graphs.before.nodes.forEach((n, i) => n.groups.forEach((k) => nodesOfGroup[k].push(i)));
const pairsOfGroup = report.groups.map(() => []);
report.neighbours.forEach((pair) => {
  pairsOfGroup[pair.producer].push(pair);
  if (pair.consumer !== pair.producer) pairsOfGroup[pair.consumer].push(pair);
});
const nodeOfGroup = report.groups.map(() => -1);
graphs.after.nodes.forEach((n, i) => { if (n.kind === 'group') nodeOfGroup[n.groups[0]] = i; });
/** The group that writes an arena value: the launch at which its life begins. */
const writerOf = (value) => value.first;
