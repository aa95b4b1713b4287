#include "codegen/kernel/kernel.h"

#include <fmt/format.h>

namespace ingot {
namespace {

std::string axes_text(const std::vector<Axis>& axes) {
  std::string text;
  for (const Axis& a : axes) text += fmt::format("{}{} in {}", text.empty() ? "" : ", ", to_string(a.var), to_string(a.extent));
  return text;
}
std::string value_text(const Kernel& k, const Expr& e) {
  // Loads print as loadN[…] inside expressions; the parameter list gives N its name.
  (void)k;
  return to_string(e);
}
void print_body(const Kernel& k, const Body& body, int depth, std::string& out);

void print(const Kernel& k, const Stmt& s, int depth, std::string& out) {
  const std::string pad(static_cast<size_t>(depth) * 2, ' ');
  auto nested = [&](const std::string& head, const Body& body) {
    out += pad + head + " {\n";
    print_body(k, body, depth + 1, out);
    out += pad + "}\n";
  };
  if (auto* let = s.as<Let>()) out += fmt::format("{}let {}: {} = {}\n", pad, let->var.name(), name_of(let->var.type()), value_text(k, let->value));
  if (auto* st = s.as<Store>()) out += fmt::format("{}store{}[{}] = {}\n", pad, st->buffer, to_string(st->index), value_text(k, st->value));
  if (auto* l = s.as<Loop>()) nested("loop " + axes_text(l->axes), l->body);
  if (auto* r = s.as<Reduce>())
    out += fmt::format("{}reduce {}: {} = {}{} over {} of {}\n", pad, r->result.name(), name_of(r->result.type()), name_of(r->combine),
                       r->last ? " last" : "", axes_text(r->axes), value_text(k, r->value));
  if (auto* a = s.as<Alloc>()) out += fmt::format("{}alloc {} \"{}\": {}[{}]\n", pad, a->buffer, a->name, name_of(a->type), to_string(a->size));
  if (auto* i = s.as<If>()) nested("if " + to_string(i->condition), i->body);
  if (auto* n = s.as<Note>()) out += pad + "# " + n->text + "\n";
  if (auto* t = s.as<Attend>()) {
    out += fmt::format("{}attend{} {}: batch({}) m({}) n({}) k({}) d({})\n", pad, t->no_logit == NoLogit::Nan ? "" : t->no_logit == NoLogit::Zero ? " (none is zero)" : " (nan is zero)", t->acc.name(), axes_text(t->batch), axes_text(t->m),
                       axes_text(t->n), axes_text(t->k), axes_text(t->d));
    out += fmt::format("{0}  q = {1}\n{0}  key = {2}\n{0}  score = {3}\n{0}  value = {4}\n", pad, to_string(t->q), to_string(t->key),
                       to_string(t->score), to_string(t->value));
    nested("  epilogue", t->epilogue);
  }
  if (auto* c = s.as<Contract>()) {
    out += fmt::format("{}contract {}: {} batch({}) m({}) n({}) k({})\n", pad, c->acc.name(), name_of(c->acc.type()), axes_text(c->batch),
                       axes_text(c->m), axes_text(c->n), axes_text(c->k));
    out += fmt::format("{}  a = {}\n{}  b = {}\n", pad, to_string(c->a), pad, to_string(c->b));
    if (!c->group.empty())
      out += fmt::format("{}  {} = {} over group({}) of {}\n", pad, c->combined.name(), name_of(c->combine), axes_text(c->group), to_string(c->value));
    if (!c->rows.empty()) nested("  rows", c->rows);
    nested("  epilogue", c->epilogue);
    for (const Store& sum : c->parts.sums)
      out += fmt::format("{}  store{}[{}] = sum of {} over parts({}) of {}\n", pad, sum.buffer, to_string(sum.index), c->parts.width,
                         axes_text({c->parts.part}), to_string(sum.value));
  }
}
void print_body(const Kernel& k, const Body& body, int depth, std::string& out) {
  for (const Stmt& s : body) print(k, s, depth, out);
}

}  // namespace

const char* name_of(MultiplyUnit unit) {
  switch (unit) {
    case MultiplyUnit::Simt: return "simt";
    case MultiplyUnit::F16: return "f16";
    case MultiplyUnit::BF16: return "bf16";
    case MultiplyUnit::Tf32x3: return "tf32x3";
    case MultiplyUnit::Tf32: return "tf32";
    case MultiplyUnit::Bytes: return "bytes";
    case MultiplyUnit::F8: return "f8";
  }
  return "?";
}

static std::string to_string(const MmaTile& t) {
  if (t.row_teams > 0) return fmt::format("{}x{}x{} rows by {} warpgroups stages={}", t.m, t.n, t.k, t.row_teams, t.stages);
  return fmt::format("{}x{}x{} {} {}x{} stages={}{}{}{}{}", t.m, t.n, t.k, t.warpgroups ? "warpgroup" : "warp", t.warp_m,
                     t.warp_n, t.stages, t.k_warps > 1 ? fmt::format(" k_warps={}", t.k_warps) : "",
                     t.overlap ? " overlap" : "", t.boxes ? " boxes" : "", t.in_turn ? " in turn" : "");
}

static std::string way_of(const Schedule& s) {
  switch (s.kind) {
    case Schedule::Kind::Points: return fmt::format("points threads={} vector={} per_thread={}", s.threads, s.vector, s.points_per_thread);
    case Schedule::Kind::Crossed:
      return fmt::format("tiles of {} across by {} along, threads={} vector={}", s.tile.m, s.tile.n, s.threads, s.vector);
    case Schedule::Kind::Columns:
      return fmt::format("columns threads={} vector={} points_per_block={}", s.threads, s.vector, s.rows_per_block);
    case Schedule::Kind::Rows:
      return fmt::format("rows threads={} vector={} rows_per_block={}{}", s.threads, s.vector, s.rows_per_block,
                         s.cluster_k > 1 ? fmt::format(" blocks_per_row={}", s.cluster_k) : "");
    case Schedule::Kind::Window:
      return fmt::format("window {} channels, {} rows and {} columns a thread, threads={}{}{}", s.vector, s.tile.m, s.tile.n, s.threads,
                         s.tile.k > 0 ? fmt::format(" on whole lines of {} channels", s.tile.k * s.vector) : "",
                         s.shared_weights ? ", weights in shared memory" : "");
    case Schedule::Kind::Attention:
      return fmt::format("attention {} {} queries, {} keys at a time{}, stages={}, threads={}", name_of(s.unit), s.tile.m, s.tile.n,
                         s.tile.boxes ? " by boxes" : "", s.tile.stages, s.threads) +
             (s.tile.k_warps > 1 ? fmt::format(", keys divided among {} warps and {} blocks", s.tile.k_warps, s.cluster_k) : "");
    case Schedule::Kind::Tiles:
      if (s.unit != MultiplyUnit::Simt)
        return fmt::format("tiles {} {} threads={} cluster_k={}{}", name_of(s.unit), to_string(s.tile), s.threads,
                           s.cluster_k, s.grid_k > 1 ? fmt::format(" grid_k={}", s.grid_k) : "");
      return fmt::format("tiles {}x{}x{} thread {}x{} threads={} stages={} split_k={}", s.tile_m, s.tile_n, s.tile_k, s.thread_m,
                         s.thread_n, s.threads, s.stages, s.split_k);
  }
  return "?";
}

std::string to_string(const Schedule& s) {
  std::string text = way_of(s);
  if (s.from) text += fmt::format(" from {} results on", s.from);
  if (s.below) text += fmt::format(" below {} results", s.below);
  return text;
}

const Attend* Kernel::attend() const {
  for (const Stmt& s : body)
    if (auto* a = s.as<Attend>()) return a;
  return nullptr;
}

const Contract* Kernel::contract() const {
  for (const Stmt& s : body)
    if (auto* c = s.as<Contract>()) return c;
  return nullptr;
}

Kernel rows_in_epilogue(Kernel kernel) {
  for (Stmt& s : kernel.body)
    if (auto* c = std::get_if<Contract>(&s.node)) {
      c->epilogue.insert(c->epilogue.begin(), c->rows.begin(), c->rows.end());
      c->rows.clear();
    }
  return kernel;
}

std::string to_string(const Kernel& k) {
  std::string out = "kernel " + k.name + "(";
  for (size_t i = 0; i < k.buffers.size(); ++i) {
    const Buffer& b = k.buffers[i];
    std::string shape;
    for (const Expr& d : b.shape) shape += (shape.empty() ? "" : ",") + to_string(d);
    out += fmt::format("{}{} {}: {}[{}]", i ? ", " : "", b.is_output ? "out" : b.is_constant ? "const" : b.is_early ? "early" : "in", b.name, name_of(b.type), shape);
  }
  for (const Expr& d : k.dims) out += ", " + d.name();
  out += ")";
  if (!k.domain.empty()) out += " for " + axes_text(k.domain);
  out += " {\n";
  print_body(k, k.body, 1, out);
  return out + "}\n";
}

}  // namespace ingot
