'use strict';
// One graph on a canvas: drawn from a layout, moved and zoomed by mouse, touch and keys, with an overview at its right edge.
// Only what is in view is drawn, so thousands of nodes stay quick.
const kOverview = 46, kLegible = 0.42, kLargest = 3, kSmallest = 0.01;

class GraphView {
  /** `look`: {colour(node), title(node), note(node), pick(index)}; index is a position in graph.nodes. */
  constructor(pane, graph, look) {
    this.canvas = pane.querySelector('canvas');
    this.counter = pane.querySelector('.count');
    this.graph = graph;
    this.look = look;
    this.scale = 1;
    this.left = this.top = 0;  // of the view, in the layout's units
    this.selected = new Set();
    this.found = new Set();
    this.listen();
    new ResizeObserver(() => this.resize()).observe(this.canvas);
  }

  /** Lays out the nodes for which shown(node, index) holds. */
  arrange(shown) {
    this.layout = layoutGraph(this.graph, shown);
    this.local = new Map(this.layout.ids.map((id, i) => [id, i]));
    const nodes = this.layout.ids.filter((id) => ['node', 'group'].includes(this.graph.nodes[id].kind)).length;
    this.counter.textContent = formatCount(nodes);
    this.home();
  }
  resize() {
    const ratio = window.devicePixelRatio || 1, box = this.canvas.getBoundingClientRect();
    const fresh = !this.width;
    this.width = box.width;
    this.height = box.height;
    this.canvas.width = Math.round(box.width * ratio);
    this.canvas.height = Math.round(box.height * ratio);
    if (fresh && this.layout) this.home();
    this.redraw();
  }
  redraw() {
    if (this.pending) return;
    this.pending = true;
    requestAnimationFrame(() => { this.pending = false; this.draw(); });
  }

  // ---- the view --------------------------------------------------------------------------------------------------------
  /** All of it where that is legible; otherwise its beginning. */
  home() {
    if (!this.width || !this.layout) return;
    const room = this.width - kOverview - 20, whole = Math.min(room / this.layout.width, (this.height - 60) / this.layout.height);
    this.scale = Math.min(1, Math.max(whole, Math.min(kLegible * 2, Math.max(room / this.layout.width, kLegible))));
    this.top = -48 / this.scale;
    this.left = this.layout.width / 2 - (this.width - kOverview) / 2 / this.scale;
    if (this.layout.layers.length && this.layout.layers[0].length && this.layout.width * this.scale > room)
      this.left = this.layout.x[this.layout.layers[0][0]] - (this.width - kOverview) / 2 / this.scale;
    this.redraw();
  }
  zoom(factor, px = this.width / 2, py = this.height / 2) {
    const scale = Math.min(kLargest, Math.max(kSmallest, this.scale * factor));
    this.left += px / this.scale - px / scale;
    this.top += py / this.scale - py / scale;
    this.scale = scale;
    this.redraw();
  }
  pan(dx, dy) {
    this.left -= dx / this.scale;
    this.top -= dy / this.scale;
    this.redraw();
  }
  /** Brings the nodes into view: moved to their middle unless all are in it; at least legible. */
  reveal(ids) {
    const at = [...ids].map((id) => this.local.get(id)).filter((i) => i !== undefined);
    if (!at.length || !this.width) return;
    const xs = at.map((i) => this.layout.x[i]), ys = at.map((i) => this.layout.y[i]);
    const [x0, x1, y0, y1] = [Math.min(...xs), Math.max(...xs), Math.min(...ys), Math.max(...ys)];
    if (this.scale < kLegible) this.scale = 0.8;
    const room = {x: (this.width - kOverview) / this.scale, y: this.height / this.scale};
    const margin = kNodeWidth / 2;
    const inside = x0 - margin > this.left && x1 + margin < this.left + room.x && y0 - 60 > this.top && y1 + 40 < this.top + room.y;
    if (inside) return this.redraw();
    const fits = x1 - x0 + 2 * margin < room.x && y1 - y0 + 100 < room.y;
    this.left = (fits ? (x0 + x1) / 2 : xs[0]) - room.x / 2;
    this.top = (fits ? (y0 + y1) / 2 : ys[0]) - room.y / 2;
    this.redraw();
  }
  select(ids, reveal) {
    this.selected = new Set(ids);
    if (reveal) this.reveal(this.selected);
    this.redraw();
  }
  mark(ids) {
    this.found = new Set(ids);
    this.redraw();
  }

  // ---- where things are --------------------------------------------------------------------------------------------------
  /** The middle of a node on the canvas, in CSS pixels; null for one that is not shown. */
  placeOf(id) {
    const i = this.local.get(id);
    if (i === undefined) return null;
    return {x: (this.layout.x[i] - this.left) * this.scale, y: (this.layout.y[i] - this.top) * this.scale};
  }
  nodeAt(px, py) {
    const x = px / this.scale + this.left, y = py / this.scale + this.top;
    const layer = this.layout.layers[Math.floor(y / kRankHeight)];
    if (!layer || y % kRankHeight > kNodeHeight) return -1;
    const hit = layer.find((i) => Math.abs(this.layout.x[i] - x) <= kNodeWidth / 2);
    return hit === undefined ? -1 : this.layout.ids[hit];
  }

  // ---- drawing -----------------------------------------------------------------------------------------------------------
  draw() {
    if (!this.layout || !this.width) return;
    const c = this.canvas.getContext('2d'), ratio = window.devicePixelRatio || 1;
    c.setTransform(ratio, 0, 0, ratio, 0, 0);
    c.fillStyle = colour('paper');
    c.fillRect(0, 0, this.width, this.height);
    const k = ratio * this.scale;
    c.setTransform(k, 0, 0, k, -this.left * k, -this.top * k);
    this.drawEdges(c);
    this.drawNodes(c);
    c.setTransform(ratio, 0, 0, ratio, 0, 0);
    this.drawOverview(c);
  }
  drawEdges(c) {
    const bottom = this.top + this.height / this.scale, edge = colour('edge'), accent = colour('accent'), ids = this.layout.ids;
    c.lineWidth = Math.max(1, 0.6 / this.scale);
    for (const lit of [false, true]) {
      c.strokeStyle = lit ? accent : edge;
      for (const e of this.layout.edges) {
        const p = e.points;
        if (p[1] > bottom || p[p.length - 1] < this.top) continue;
        if (lit !== (this.selected.has(ids[e.from]) || this.selected.has(ids[e.to]))) continue;
        c.setLineDash(e.far ? [6 / this.scale, 5 / this.scale] : []);
        c.beginPath();
        c.moveTo(p[0], p[1]);
        for (let q = 2; q < p.length; q += 2) {
          const middle = (p[q - 1] + p[q + 1]) / 2;
          c.bezierCurveTo(p[q - 2], middle, p[q], middle, p[q], p[q + 1]);
        }
        c.stroke();
      }
    }
    c.setLineDash([]);
  }
  drawNodes(c) {
    const first = Math.max(0, Math.floor(this.top / kRankHeight));
    const last = Math.min(this.layout.layers.length - 1, Math.ceil((this.top + this.height / this.scale) / kRankHeight));
    const right = this.left + this.width / this.scale, style = {};
    for (const name of ['sheet', 'ink', 'faint', 'accent', 'line', 'wash', ...kinds, 'none', 'join', 'port']) style[name] = colour(name);
    for (let r = first; r <= last; ++r)
      for (const i of this.layout.layers[r]) {
        const x = this.layout.x[i] - kNodeWidth / 2;
        if (x + kNodeWidth < this.left || x > right) continue;
        this.drawNode(c, this.layout.ids[i], x, this.layout.y[i] - kNodeHeight / 2, style);
      }
  }
  drawNode(c, id, x, y, style) {
    const node = this.graph.nodes[id], chosen = this.selected.has(id);
    c.fillStyle = chosen ? style.wash : style.sheet;
    c.strokeStyle = chosen || this.found.has(id) ? style.accent : style.line;
    c.lineWidth = chosen || this.found.has(id) ? Math.max(2, 1.5 / this.scale) : 1;
    c.beginPath();
    c.roundRect(x, y, kNodeWidth, kNodeHeight, node.kind === 'node' || node.kind === 'group' ? 4 : kNodeHeight / 2);
    c.fill();
    c.stroke();
    c.fillStyle = style[this.look.colour(node)];
    if (this.scale < 0.16) {
      c.fillRect(x + 3, y + 6, kNodeWidth - 6, kNodeHeight - 12);
      return;
    }
    c.fillRect(x + (node.kind === 'node' || node.kind === 'group' ? 0 : 12), y + 4, 4, kNodeHeight - 8);
    if (this.scale * 12 < 4.5) return;
    const inset = node.kind === 'node' || node.kind === 'group' ? 11 : 22;
    c.fillStyle = style.ink;
    c.font = '600 12px system-ui, sans-serif';
    c.fillText(clipped(c, this.look.title(node), kNodeWidth - inset - 8), x + inset, y + 16);
    c.fillStyle = style.faint;
    c.font = '10.5px system-ui, sans-serif';
    c.fillText(clipped(c, this.look.note(node), kNodeWidth - inset - 8), x + inset, y + 30);
  }
  /** The whole graph in a strip, with what is in view. Drawn once for each arrangement. */
  drawOverview(c) {
    const x0 = this.width - kOverview, fx = (kOverview - 10) / this.layout.width, fy = (this.height - 8) / this.layout.height;
    c.fillStyle = colour('sheet');
    c.fillRect(x0, 0, kOverview, this.height);
    const marked = this.found.size || this.selected.size;
    const w = Math.max(2, kNodeWidth * fx), h = Math.max(1, Math.min(6, kNodeHeight * fy)), style = {};
    for (const name of [...kinds, 'none', 'join', 'port', 'accent']) style[name] = colour(name);
    for (const lit of [false, true]) {
      if (lit && !marked) break;
      c.globalAlpha = lit || !marked ? 1 : 0.4;
      this.layout.ids.forEach((id, i) => {
        const on = this.found.has(id) || this.selected.has(id);
        if (lit && !on) return;
        c.fillStyle = lit ? style.accent : style[this.look.colour(this.graph.nodes[id])];
        const grow = lit ? 1 : 0;
        c.fillRect(x0 + 5 + this.layout.x[i] * fx - w / 2 - grow, 4 + this.layout.y[i] * fy - h / 2 - grow, w + 2 * grow, h + 2 * grow);
      });
    }
    c.globalAlpha = 1;
    c.strokeStyle = colour('accent');
    c.lineWidth = 1;
    const top = 4 + Math.max(0, this.top * fy), bottom = 4 + Math.min(this.layout.height, this.top + this.height / this.scale) * fy;
    c.strokeRect(x0 + 1.5, top, kOverview - 3, Math.max(4, bottom - top));
  }

  // ---- input -------------------------------------------------------------------------------------------------------------
  jump(py) {
    this.top = (py - 4) / (this.height - 8) * this.layout.height - this.height / this.scale / 2;
    this.redraw();
  }
  listen() {
    let drag = null;
    const at = (e) => { const box = this.canvas.getBoundingClientRect(); return [e.clientX - box.left, e.clientY - box.top]; };
    this.canvas.addEventListener('pointerdown', (e) => {
      const [x, y] = at(e);
      drag = {x, y, moved: false, overview: x > this.width - kOverview};
      this.canvas.setPointerCapture(e.pointerId);
      if (drag.overview) this.jump(y);
    });
    this.canvas.addEventListener('pointermove', (e) => {
      const [x, y] = at(e);
      if (!drag) { this.hint(x, y); return; }
      if (drag.overview) { this.jump(y); return; }
      if (!drag.moved && Math.hypot(x - drag.x, y - drag.y) < 4) return;
      this.pan(x - drag.x, y - drag.y);
      drag = {...drag, x, y, moved: true};
    });
    this.canvas.addEventListener('pointerup', (e) => {
      const [x, y] = at(e);
      if (drag && !drag.moved && !drag.overview) this.look.pick(this.nodeAt(x, y));
      drag = null;
    });
    this.canvas.addEventListener('pointercancel', () => { drag = null; });
    this.canvas.addEventListener('wheel', (e) => {
      e.preventDefault();
      const [x, y] = at(e);
      this.zoom(Math.exp(-e.deltaY * (e.deltaMode ? 0.04 : 0.0016)), x, y);
    }, {passive: false});
    this.canvas.addEventListener('dblclick', () => this.home());
    this.canvas.addEventListener('keydown', (e) => {
      const step = {ArrowLeft: [80, 0], ArrowRight: [-80, 0], ArrowUp: [0, 80], ArrowDown: [0, -80]}[e.key];
      if (step) this.pan(...step);
      else if (e.key === '+' || e.key === '=') this.zoom(1.25);
      else if (e.key === '-') this.zoom(0.8);
      else if (e.key === '0') this.home();
      else return;
      e.preventDefault();
    });
  }
  hint(x, y) {
    const id = x > this.width - kOverview ? -1 : this.nodeAt(x, y), node = id < 0 ? null : this.graph.nodes[id];
    this.canvas.style.cursor = node ? 'pointer' : '';
    this.canvas.title = node ? [this.look.title(node), node.label, node.type].filter((t) => t).join('\n') : '';
  }
}

const clippedTexts = new Map();
/** As much of the text as fits into `room` in the canvas's font: the end of long names tells them apart. */
function clipped(c, text, room) {
  const key = c.font + room + text;
  let fit = clippedTexts.get(key);
  if (fit !== undefined) return fit;
  fit = text;
  for (let keep = text.length; keep > 4 && c.measureText(fit).width > room;) {
    keep = Math.min(keep - 1, Math.ceil(keep * room / c.measureText(fit).width));
    const head = Math.ceil(keep / 3);
    fit = text.slice(0, head) + '…' + text.slice(text.length - (keep - head - 1));
  }
  clippedTexts.set(key, fit);
  return fit;
}
