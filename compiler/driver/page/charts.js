'use strict';
// The roofline and the arena over time, as SVG.

const logScale = (low, high, from, to) => (v) => from + (Math.log10(v) - Math.log10(low)) / (Math.log10(high) - Math.log10(low)) * (to - from);

function decades(low, high) {
  const all = [];
  for (let d = Math.ceil(Math.log10(low) - 1e-9); d <= Math.floor(Math.log10(high) + 1e-9); ++d) all.push(10 ** d);
  return all;
}

/** Every kernel where its bytes and operations put it under the roofs of the target; the area is its estimated time. */
function drawRoofline(host, pick) {
  const groups = report.groups.map((g, k) => ({g, k})).filter(({g}) => g.flops > 0 && g.bytes > 0);
  const w = Math.max(host.clientWidth - 20, 480), h = Math.max(host.clientHeight - 50, 220), left = 92, right = 210, top = 14, bottom = 34;
  const memory = report.target.memory_gbps, roofs = report.target.roofs, peak = Math.max(...roofs.map((r) => r.gflops));
  const xs = groups.map(({g}) => intensity(g));
  const low = 10 ** Math.floor(Math.log10(Math.min(0.1, ...xs))), high = 10 ** Math.ceil(Math.log10(Math.max(...xs, 10 * peak / memory)));
  const floor = 10 ** Math.floor(Math.log10(low * memory)), ceiling = 10 ** Math.ceil(Math.log10(peak));
  const x = logScale(low, high, left, w - right), y = logScale(floor, ceiling, h - bottom, top);
  const svg = el('svg', {width: w, height: h, role: 'img', 'aria-label': 'Roofline'});
  for (const d of decades(low, high))
    svg.append(el('line', {class: 'axis', x1: x(d), x2: x(d), y1: top, y2: h - bottom}),
               el('text', {x: x(d), y: h - bottom + 15, 'text-anchor': 'middle'}, d >= 1 ? formatCount(d) : String(+d.toPrecision(1))));
  for (const d of decades(floor, ceiling))
    svg.append(el('line', {class: 'axis', x1: left, x2: w - right, y1: y(d), y2: y(d)}),
               el('text', {x: left - 6, y: y(d) + 4, 'text-anchor': 'end'}, d >= 1e3 ? formatCount(d / 1e3) + ' TFLOP/s' : formatCount(d) + ' GFLOP/s'));
  svg.append(el('text', {x: (left + w - right) / 2, y: h - 4, 'text-anchor': 'middle'}, 'FLOP per byte'));
  for (const r of roofs) {
    const knee = r.gflops / memory;
    svg.append(el('path', {class: 'roof', d: `M${x(low)},${y(low * memory)} L${x(knee)},${y(r.gflops)} L${x(high)},${y(r.gflops)}`}),
               el('text', {x: w - right + 6, y: y(r.gflops) + 4}, `${r.name} ${formatFlops(r.gflops * 1e9)}/s`));
  }
  svg.append(el('text', {x: x(low * 2) + 10, y: y(low * 2 * memory) + 12}, `memory ${formatBytes(memory * 1e9)}/s`));
  const longest = Math.max(...groups.map(({g}) => g.us), 1e-9);
  for (const {g, k} of [...groups].sort((a, b) => b.g.us - a.g.us))
    svg.append(el('circle', {
      class: 'dot', 'data-group': k, cx: x(intensity(g)), cy: y(attainable(g)), r: 3 + 11 * Math.sqrt(g.us / longest),
      style: `fill: var(--${kindOf(k)})`, onclick: () => pick(k),
    }, el('title', {}, `${groupTitle(k)}\n${intensity(g).toPrecision(3)} FLOP/byte, bound by ${g.bound}, ${formatTime(g.us)} at the roof`)));
  const none = report.groups.length - groups.length;
  host.replaceChildren(el('div', {class: 'tools'},
    'Where each kernel stands by its bytes and operations: the best it can reach, at nominal rates and not measured. Area: time at the roof.' +
    (none ? ` Kernels without arithmetic, which are not shown: ${none}.` : '')), svg);
}

/** The arena: a rectangle for each value, from the launch that writes it first to the one that reads it last. */
function drawMemory(host, pick) {
  const values = report.arena.values, steps = report.groups.length, total = Math.max(report.arena.bytes, 1);
  const w = Math.max(host.clientWidth - 20, 480), h = Math.max(host.clientHeight - 50, 220), left = 80, top = 8, bottom = 30;
  const x = (step) => left + step / Math.max(steps, 1) * (w - left - 14), y = (offset) => h - bottom - offset / total * (h - top - bottom);
  const svg = el('svg', {width: w, height: h, role: 'img', 'aria-label': 'Memory over time'});
  for (let q = 0; q <= 4; ++q)
    svg.append(el('line', {class: 'axis', x1: left, x2: w - 14, y1: y(total * q / 4), y2: y(total * q / 4)}),
               el('text', {x: left - 6, y: y(total * q / 4) + 4, 'text-anchor': 'end'}, formatBytes(total * q / 4)));
  const every = Math.max(1, 10 ** Math.ceil(Math.log10(steps / 12)) / (steps / 12 > 5 ? 2 : 1));
  for (let s = 0; s < steps; s += Math.max(1, Math.round(every)))
    svg.append(el('text', {x: x(s + 0.5), y: h - bottom + 15, 'text-anchor': 'middle'}, String(s)));
  svg.append(el('text', {x: w / 2, y: h - 2, 'text-anchor': 'middle'}, 'launch'));
  values.forEach((v, i) => svg.append(el('rect', {
    class: 'value', 'data-value': i, 'data-group': writerOf(v), x: x(v.first), y: y(v.offset + v.bytes), width: x(v.last + 1) - x(v.first),
    height: Math.max(y(v.offset) - y(v.offset + v.bytes), 0.8), style: `fill: var(--${kindOf(writerOf(v))})`, onclick: () => pick(writerOf(v)),
  }, el('title', {}, `${v.name}  ${v.type}\n${formatBytes(v.bytes)} at ${formatCount(v.offset)}, slot ${v.slot}, launches ${v.first} to ${v.last}`))));
  const live = liveBytes(values, steps);
  svg.append(el('polyline', {class: 'live', points: live.flatMap((b, s) => [`${x(s)},${y(b)}`, `${x(s + 1)},${y(b)}`]).join(' ')}),
             el('line', {class: 'cursor', y1: top, y2: h - bottom, x1: -9, x2: -9}));
  host.replaceChildren(el('div', {class: 'tools'},
    `${formatCount(values.length)} values in ${report.arena.slots.length} slots, ${formatBytes(total)}; at most ` +
    `${formatBytes(Math.max(0, ...live))} hold values at once (the line). Inputs, outputs and weights lie elsewhere.`), svg);
  host.moveCursor = (step) => svg.querySelectorAll('.cursor').forEach((line) => {
    for (const end of ['x1', 'x2']) line.setAttribute(end, step < 0 ? -9 : x(step + 0.5));
  });
}

/** Bytes of values that are alive during each launch. */
function liveBytes(values, steps) {
  const change = new Float64Array(steps + 1);
  for (const v of values) { change[v.first] += v.bytes; change[v.last + 1] -= v.bytes; }
  let sum = 0;
  return Array.from({length: steps}, (_, s) => (sum += change[s]));
}
