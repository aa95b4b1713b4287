'use strict';
// Layered drawing of a directed acyclic graph, top to bottom, in time close to linear in nodes and edges:
// ranks by the longest path; edges over several ranks become chains of bends; the order in a rank by the mean position of
// neighbours; places by least squares under minimal distances. Edges longer than kLongest ranks are not bent around.
const kRankHeight = 66, kNodeHeight = 38, kNodeWidth = 168, kBendWidth = 16, kGap = 14;
const kLongest = 16, kOrderSweeps = 8, kPlaceSweeps = 10;

/** Edges among the shown nodes; through nodes that are not shown, unless these only look at shapes. */
function shownEdges(graph, shown) {
  const before = graph.nodes.map(() => []);
  for (const [from, to, type] of graph.edges) before[to].push([from, type]);
  const sources = new Map();
  const sourcesOf = (node) => {  // shown nodes that a hidden one leads to, without recursion
    const found = new Map(), seen = new Set([node]), work = [node];
    while (work.length && found.size < 4) {
      const at = work.pop();
      if (graph.nodes[at].op === 'Shape' || graph.nodes[at].op === 'Size') continue;
      for (const [from, type] of before[at]) {
        if (shown[from]) found.set(from, type);
        else if (!seen.has(from)) { seen.add(from); work.push(from); }
      }
    }
    return [...found];
  };
  const edges = [];
  for (const [from, to, type] of graph.edges) {
    if (!shown[to]) continue;
    if (shown[from]) { edges.push([from, to, type]); continue; }
    if (!sources.has(from)) sources.set(from, sourcesOf(from));
    for (const [source] of sources.get(from)) if (source !== to) edges.push([source, to, type]);
  }
  return edges;
}

/** Longest path from a source; sources stand right above what reads them first. */
function ranksOf(count, edges) {
  const out = Array.from({length: count}, () => []), missing = new Int32Array(count), rank = new Int32Array(count);
  for (const [from, to] of edges) { out[from].push(to); ++missing[to]; }
  const isSource = Array.from(missing, (m) => m === 0);
  const work = [];
  for (let i = 0; i < count; ++i) if (isSource[i]) work.push(i);
  for (let at = 0; at < work.length; ++at)
    for (const to of out[work[at]]) {
      rank[to] = Math.max(rank[to], rank[work[at]] + 1);
      if (--missing[to] === 0) work.push(to);
    }
  for (let i = 0; i < count; ++i)
    if (isSource[i] && out[i].length) rank[i] = Math.max(0, out[i].reduce((r, to) => Math.min(r, rank[to]), Infinity) - 1);
  return rank;
}

/** Boxes (nodes, then bends) with their ranks and links, and the boxes along each edge. */
function withBends(ids, edges, rank) {
  const boxes = {rank: Array.from(rank), width: ids.map(() => kNodeWidth), above: ids.map(() => []), below: ids.map(() => [])};
  const link = (a, b) => { boxes.below[a].push(b); boxes.above[b].push(a); };
  const paths = edges.map(([from, to]) => {
    const path = [from];
    if (rank[to] - rank[from] <= kLongest) {
      for (let r = rank[from] + 1; r < rank[to]; ++r) {
        const bend = boxes.rank.push(r) - 1;
        boxes.width.push(kBendWidth);
        boxes.above.push([]);
        boxes.below.push([]);
        link(path[path.length - 1], bend);
        path.push(bend);
      }
      link(path[path.length - 1], to);
    }
    path.push(to);
    return path;
  });
  return {boxes, paths};
}

function orderLayers(boxes) {
  const layers = [];
  boxes.rank.forEach((r, i) => { (layers[r] ||= []).push(i); });
  for (let r = 0; r < layers.length; ++r) layers[r] ||= [];
  const position = new Float64Array(boxes.rank.length), key = new Float64Array(boxes.rank.length);
  const number = (layer) => layer.forEach((i, p) => { position[i] = p - layer.length / 2; });
  layers.forEach(number);
  for (let sweep = 0; sweep < kOrderSweeps; ++sweep) {
    const down = sweep % 2 === 0;
    for (const layer of down ? layers : [...layers].reverse()) {
      for (const i of layer) {
        const near = down ? boxes.above[i] : boxes.below[i];
        key[i] = near.length ? near.reduce((sum, j) => sum + position[j], 0) / near.length : position[i];
      }
      layer.sort((a, b) => key[a] - key[b] || position[a] - position[b]);
      number(layer);
    }
  }
  return layers;
}

/** Places closest to `want` in the sum of squares, with neighbours at least `apart` apart: pooled blocks, in linear time. */
function placeRow(layer, want, apart, x) {
  const blocks = [];  // {from, offset sum, count}: members stand at mean + their offset
  let offset = 0;
  const offsets = layer.map((i, p) => (p ? (offset += apart(layer[p - 1], i)) : 0));
  layer.forEach((i, p) => {
    blocks.push({from: p, sum: want[i] - offsets[p], count: 1});
    for (let b = blocks.length - 1; b > 0 && blocks[b - 1].sum / blocks[b - 1].count > blocks[b].sum / blocks[b].count; --b) {
      blocks[b - 1].sum += blocks[b].sum;
      blocks[b - 1].count += blocks[b].count;
      blocks.pop();
    }
  });
  blocks.forEach((block) => {
    for (let p = block.from; p < block.from + block.count; ++p) x[layer[p]] = block.sum / block.count + offsets[p];
  });
}

function placeLayers(boxes, layers) {
  const count = boxes.rank.length, x = new Float64Array(count), want = new Float64Array(count);
  const apart = (a, b) => (boxes.width[a] + boxes.width[b]) / 2 + kGap;
  for (const layer of layers) placeRow(layer, want, apart, x);
  for (let sweep = 0; sweep < kPlaceSweeps; ++sweep) {
    const down = sweep % 2 === 0, last = sweep + 1 === kPlaceSweeps;
    for (const layer of down ? layers : [...layers].reverse()) {
      for (const i of layer) {
        const near = last ? [...boxes.above[i], ...boxes.below[i]] : down ? boxes.above[i] : boxes.below[i];
        want[i] = near.length ? near.reduce((sum, j) => sum + x[j], 0) / near.length : x[i];
      }
      placeRow(layer, want, apart, x);
    }
  }
  return x;
}

/**
 * Places of the nodes for which shown(node, index) holds.
 * @returns {ids, x, y, layers, edges: [{from, to, type, points: [x, y, x, y…], far}], width, height}: ids are positions in
 * graph.nodes; x and y are the centres of the boxes, by position in ids, as from and to; layers hold such positions.
 */
function layoutGraph(graph, shown) {
  const visible = graph.nodes.map(shown);
  const ids = [], local = new Int32Array(graph.nodes.length).fill(-1);
  visible.forEach((v, i) => { if (v) local[i] = ids.push(i) - 1; });
  const edges = shownEdges(graph, visible).map(([from, to, type]) => [local[from], local[to], type]);
  const {boxes, paths} = withBends(ids, edges, ranksOf(ids.length, edges));
  const layers = orderLayers(boxes);
  const x = placeLayers(boxes, layers);
  let left = Infinity, right = -Infinity;
  for (let i = 0; i < ids.length; ++i) {
    left = Math.min(left, x[i] - kNodeWidth / 2);
    right = Math.max(right, x[i] + kNodeWidth / 2);
  }
  const y = boxes.rank.map((r) => r * kRankHeight + kNodeHeight / 2);
  const placed = edges.map(([from, to, type], e) => ({
    from, to, type, far: boxes.rank[to] - boxes.rank[from] > kLongest,
    points: paths[e].flatMap((i, p) => [x[i] - left, y[i] + (p === 0 ? 1 : p + 1 === paths[e].length ? -1 : 0) * kNodeHeight / 2]),
  }));
  return {
    ids, x: ids.map((_, i) => x[i] - left), y: y.slice(0, ids.length), edges: placed,
    layers: layers.map((layer) => layer.filter((i) => i < ids.length)),
    width: Math.max(right - left, 1), height: Math.max(layers.length * kRankHeight, 1),
  };
}
