'use strict';
// What is known of the selected kernel, or of the selected node of the model.

const section = (title, ...children) => [el('h3', {}, title), ...children];
const definitions = (pairs) => el('dl', {}, ...pairs.flatMap(([name, value]) => [el('dt', {}, name), el('dd', {}, value)]));
const listOf = (items) => el('ul', {}, ...items.map((item) => el('li', {}, item)));

/** The text with its comments set apart. */
function sourceView(text) {
  const pre = el('pre', {});
  let plain = '';
  const flush = () => { if (plain) pre.append(plain); plain = ''; };
  for (const line of text.split('\n')) {
    const at = line.indexOf('//');
    if (at < 0) { plain += line + '\n'; continue; }
    plain += line.slice(0, at);
    flush();
    pre.append(el('span', {class: 'note'}, line.slice(at)), '\n');
  }
  flush();
  return pre;
}

function buffersOf(list) {
  return listOf(list.map((b) => el('span', {}, el('span', {class: 'mono'}, b.type), ' ', b.name, ' ',
    el('span', {class: 'quiet'}, formatBytes(b.bytes) + (b.weight ? ', weight' : b.slot !== undefined ? `, slot ${b.slot}` : '') +
      (b.part_of ? `, in place in ${b.part_of}` : '')))));
}

function roofSentence(g) {
  const memory = g.bytes / report.target.memory_gbps / 1000, arithmetic = g.flops / rateOf(g.roof) / 1000;
  return `${intensity(g).toPrecision(3)} FLOP/byte under the roof of ${g.bound === 'memory' ? 'memory' : g.roof}: ${formatTime(memory)} for the bytes ` +
    `at ${formatBytes(report.target.memory_gbps * 1e9)}/s, ${formatTime(arithmetic)} for the operations at ${formatFlops(rateOf(g.roof) * 1e9)}/s.`;
}

function formView(form, source, alone) {
  const copy = el('button', {type: 'button', class: 'link', onclick: () => navigator.clipboard && navigator.clipboard.writeText(source)}, 'copy');
  const block = form.threads ? [['Block', `${form.threads} threads, ${formatBytes(form.shared_bytes)} of shared memory`]] : [];
  return el('div', {}, definitions([['Name', el('code', {}, form.name)], ['Plan', form.plan], ...block]),
    el('details', {open: alone}, el('summary', {}, 'Source ', copy), sourceView(source)));
}

function showGroup(panel, k, pick, pickNode) {
  const g = report.groups[k], forms = g.forms;
  const pairs = (list, other, word) => listOf(list.map((p) => el('span', {}, `${word} `,
    el('button', {type: 'button', class: 'link', onclick: () => pick(p[other])}, groupTitle(p[other])), el('span', {class: 'quiet'}, ` – ${p.reason}`))));
  const nodes = nodesOfGroup[k].map((i) => el('button', {type: 'button', class: 'link', onclick: () => pickNode(i)},
    `${graphs.before.nodes[i].op} “${graphs.before.nodes[i].label}”`));
  panel.replaceChildren(
    el('h2', {}, groupTitle(k)), el('p', {}, chipOf(k)),
    definitions([['Bytes', formatBytes(g.bytes)], ['Operations', formatFlops(g.flops)],
      ['Estimated', `${formatTime(g.us)}, ${(100 * g.us / Math.max(totalTime, 1e-12)).toPrecision(2)} % of all kernels`],
      ['Stream', g.stream + (g.waits.length ? `, waits for ${g.waits.map(groupTitle).join(', ')}` : '')]]),
    el('p', {class: 'quiet'}, roofSentence(g)),
    ...section('Operators', listOf(g.operators.map((line) => el('code', {}, line)))),
    ...section(`Nodes of the model (${nodes.length})`, listOf(nodes)),
    ...section('Reads', buffersOf(g.reads)), ...section('Writes', buffersOf(g.writes)),
    ...section('Why it is a kernel of its own',
      pairs(pairsOfGroup[k].filter((p) => p.consumer === k), 'producer', 'after'),
      pairs(pairsOfGroup[k].filter((p) => p.producer === k), 'consumer', 'before'),
      ...(pairsOfGroup[k].length ? [] : [el('p', {class: 'quiet'}, 'It has no neighbours.')])),
    ...section(forms.length > 1 ? 'Plans, by size' : 'Plan', ...forms.map((f, i) => formView(f, report.sources[k][i], forms.length === 1))));
  panel.scrollTop = 0;
}

function showNode(panel, i, pick) {
  const n = graphs.before.nodes[i];
  const groups = n.groups.map((k) => el('button', {type: 'button', class: 'link', onclick: () => pick(k)}, groupTitle(k)));
  panel.replaceChildren(el('h2', {}, n.label), el('p', {}, n.op),
    ...(n.type ? section('Type', el('p', {class: 'mono'}, n.type)) : []),
    ...(n.kind === 'node' ? section('Kernels', groups.length ? listOf(groups)
      : el('p', {class: 'quiet'}, 'None: it is evaluated when the model is compiled, or nothing is left of it.')) : []));
  panel.scrollTop = 0;
}

function showNothing(panel) {
  const symbols = Object.entries(report.symbols).map(([name, n]) => `${name} = ${n}`).join(', ');
  panel.replaceChildren(el('h2', {}, report.model.split('/').pop()),
    definitions([['File', report.model], ['Opset', String(report.opset)], ['Target', `${report.target.name}, ${report.target.precision}`],
      ['Sizes at', symbols || 'fixed'], ['Kernels', `${report.kernels}, of ${report.kernels_unfused} without fusion`],
      ['Bytes moved', `${formatBytes(report.bytes_after)}, of ${formatBytes(report.bytes_before)} without fusion`],
      ['At least', `${formatBytes(report.bytes_floor)}: every input, weight and output once`], ['Operations', formatFlops(report.flops)],
      ['Arena', `${formatBytes(report.arena_bytes)} in ${report.arena_slots} slots`]]),
    ...section('Keys', definitions([['/', 'search; ↑ ↓ and Enter choose'], ['Esc', 'nothing selected'], ['[ ]', 'the kernel before, after'],
      ['+ − 0', 'zoom a graph that has the focus; 0 shows it from its beginning'], ['wheel, drag', 'zoom, move']])));
}
