// Constant masks, and the positions that masks are made of, become formulas: a kernel computes "key <= query" faster than it
// loads it, and whoever reads the formula knows which keys a query never sees. Only what is no weight: truth values, integers,
// and floats one of which is so low that nothing is left of a logit it is added to.
#include <algorithm>
#include <set>

#include "compiler/ops/layout_ops.h"
#include "compiler/ops/registry.h"
#include "compiler/ops/rows.h"
#include "passes/passes.h"

namespace ingot {
namespace {

constexpr int64_t kFewest = 16;  // elements: less is not worth a formula
constexpr double kLow = -1e4;

/// `inside` where column <= row + shift, else `outside`.
struct Band {
  double inside, outside;
  int64_t shift;
};

double value_at(const Tensor& t, int64_t i) {
  return is_float(t.type()) ? t.float_at(i) : static_cast<double>(t.int_at(i));
}

bool is_uniform(const Tensor& t) {
  for (int64_t i = 1; i < t.count(); ++i)
    if (t.int_at(i) != t.int_at(0)) return false;
  return true;
}

std::optional<Band> find_band(const Tensor& t) {
  const int64_t columns = t.dims().back(), rows = t.dims()[t.dims().size() - 2];
  Band band{value_at(t, (rows - 1) * columns), value_at(t, columns - 1), 0};
  const bool is_mask = !is_float(t.type()) || std::min(band.inside, band.outside) <= kLow;
  if (!is_mask || !(band.inside != band.outside)) return std::nullopt;
  const auto inside_of = [&](int64_t row) {
    int64_t n = 0;
    while (n < columns && value_at(t, row * columns + n) == band.inside) ++n;
    return n;
  };
  int64_t edge = 0;  // the first row that is cut
  while (edge < rows && (inside_of(edge) == 0 || inside_of(edge) == columns)) ++edge;
  if (edge == rows) return std::nullopt;
  band.shift = inside_of(edge) - 1 - edge;
  for (int64_t i = 0; i < t.count(); ++i) {
    const int64_t row = i / columns % rows, column = i % columns;
    if (value_at(t, i) != (column <= row + band.shift ? band.inside : band.outside)) return std::nullopt;
  }
  return band;
}

Result<ValueId> build_band(GraphBuilder& b, const Tensor& t, const Band& band) {
  Shape rows(t.dims().begin(), t.dims().end()), columns = rows;
  const auto last = static_cast<int64_t>(rows.size()) - 1;
  rows.back() = 1;
  std::fill(columns.begin(), columns.end() - 1, Expr(1));
  const ValueId row = INGOT_TRY(b.add(op("Position"), PositionAttrs{rows, last - 1}, {}));
  const ValueId column = INGOT_TRY(b.add(op("Position"), PositionAttrs{columns, last}, {}));
  const ValueId limit = INGOT_TRY(b.add(op("Add"), {row, b.scalar(DType::I64, static_cast<double>(band.shift))}));
  const ValueId inside = INGOT_TRY(b.add(op("LessOrEqual"), {column, limit}));
  if (t.type() == DType::Bool) return band.inside != 0 ? Result<ValueId>(inside) : b.add(op("Not"), {inside});
  return b.add(op("Where"), {inside, b.scalar(t.type(), band.inside), b.scalar(t.type(), band.outside)});
}

/// start + step * position along the only axis of more than one element.
struct Ramp {
  int64_t axis, start, step;
};
std::optional<Ramp> find_ramp(const Tensor& t) {
  if (is_float(t.type()) || t.type() == DType::Bool || size_of(t.type()) < 4) return std::nullopt;
  const auto& dims = t.dims();
  const auto axis = std::find_if(dims.begin(), dims.end(), [](int64_t d) { return d != 1; });
  if (axis == dims.end() || *axis != t.count()) return std::nullopt;
  const Ramp ramp{axis - dims.begin(), t.int_at(0), t.int_at(1) - t.int_at(0)};
  for (int64_t i = 0; i < t.count(); ++i)
    if (t.int_at(i) != ramp.start + ramp.step * i) return std::nullopt;
  return ramp;
}
Result<ValueId> build_ramp(GraphBuilder& b, const Tensor& t, const Ramp& ramp) {
  const auto number = [&](int64_t v) { return b.constant(Tensor::ints({v}).reshaped({})); };
  ValueId v = INGOT_TRY(b.add(op("Position"), PositionAttrs{Shape(t.dims().begin(), t.dims().end()), ramp.axis}, {}));
  if (ramp.step != 1) v = INGOT_TRY(b.add(op("Mul"), {v, number(ramp.step)}));
  if (ramp.start != 0) v = INGOT_TRY(b.add(op("Add"), {v, number(ramp.start)}));
  return build_cast(b, v, t.type());
}

/// All readers take a formula as well as a value in memory.
bool is_read_by_element(const Graph& g, const Value& v) {
  return std::all_of(v.users.begin(), v.users.end(), [&](NodeId u) {
    const OpDef& reader = *g.node(u).op;
    return reader.lowers_as<Pointwise>() || reader.lowers_as<Movement>();
  });
}

Result<ValueId> formula_of(Graph& graph, ValueId id) {
  const Value& v = graph.value(id);
  const TensorPtr t = v.constant;
  if (!t || v.users.empty() || t->dims().empty() || t->count() < kFewest || !is_read_by_element(graph, v))
    return ValueId();
  GraphBuilder b(graph);
  if (!is_float(t->type()) && is_uniform(*t)) {
    Shape shape(t->dims().begin(), t->dims().end());
    return b.add(op("Expand"), ShapeAttrs{shape}, {b.scalar(t->type(), static_cast<double>(t->int_at(0)))});
  }
  if (const auto ramp = find_ramp(*t)) return build_ramp(b, *t, *ramp);
  const auto band = t->dims().size() < 2 ? std::nullopt : find_band(*t);
  return band ? build_band(b, *t, *band) : Result<ValueId>(ValueId());
}

}  // namespace

Result<bool> describe_masks(Graph& graph, const PassContext&) {
  std::set<ValueId> constants;
  for (NodeId id : graph.order()) {
    for (ValueId v : graph.node(id).inputs)
      if (v.valid() && graph.value(v).constant && !graph.is_output(v)) constants.insert(v);
  }
  bool changed = false;
  for (ValueId v : constants) {
    const ValueId formula = INGOT_TRY(formula_of(graph, v));
    if (!formula.valid()) continue;
    if (graph.value(formula).name.empty()) graph.value(formula).name = graph.value(v).name;
    graph.replace_all_uses(v, formula);
    changed = true;
  }
  return changed;
}

}  // namespace ingot
