// Results of a product that leave by TMA, and what its epilogue reads that can come by TMA into their place.
#include <algorithm>

#include "codegen/cuda/plan_cuda.h"
#include "codegen/text/c_printer.h"
#include "compiler/expr/simplify.h"
#include "compiler/ops/operands.h"

namespace ingot {

namespace {

bool is_staged(DType type) {
  return type == DType::F16 || type == DType::BF16 || type == DType::F32 || type == DType::I8 || type == DType::U8 ||
         is_f8(type);
}

/// The only store of an epilogue without loops and conditions.
const Store* only_store(const Body& epilogue) {
  const Store* store = nullptr;
  for (const Stmt& s : epilogue) {
    if (s.as<Let>()) continue;
    if (!s.as<Store>() || store) return nullptr;
    store = s.as<Store>();
  }
  return store;
}

/// The place of result (m, n) in the buffer, n along the rows of boxes.
std::optional<OperandBox> result_box(const Contract& c, int buffer, const Expr& index, DType element) {
  auto box = box_of(buffer, index, c.n, c.m, c.batch, element);
  if (!box || box->outer_stride.is_const(0)) return std::nullopt;
  return box;
}

}  // namespace

bool loads_by_column(const Kernel& kernel) {
  const Contract& c = *kernel.contract();
  const auto staged = staged_results(kernel);
  const std::vector<Expr> loads = epilogue_loads(kernel, c);
  return staged && std::all_of(loads.begin(), loads.end(), [&](const Expr& load) {
           const auto follows = [&](const std::vector<Axis>& axes) {
             return std::any_of(axes.begin(), axes.end(), [&](const Axis& a) { return depends_on(load, a.var.name()); });
           };
           return (staged->load.valid() && load.same(staged->load)) || (!follows(c.m) && !follows(c.batch));
         });
}

std::optional<StagedResults> staged_results(const Kernel& kernel) {
  const Contract& c = *kernel.contract();
  if (!c.group.empty() || c.n.empty()) return std::nullopt;
  const Store* store = only_store(c.epilogue);
  if (!store || store->buffer >= static_cast<int>(kernel.buffers.size())) return std::nullopt;
  const auto type_of = [&](int buffer) { return kernel.buffers[static_cast<size_t>(buffer)].type; };
  const Axis& lane = c.n.back();
  if (!is_staged(type_of(store->buffer)) || widest_vector(kernel, c.epilogue, lane.var, lane.extent, 2) != 2)
    return std::nullopt;
  const auto out = result_box(c, store->buffer, store->index, type_of(store->buffer));
  if (!out) return std::nullopt;
  const size_t size = size_of(type_of(store->buffer));
  StagedResults staged{*out, static_cast<int>(size), Expr(), {}};
  for (const Expr& load : epilogue_loads(kernel, c)) {
    if (!is_staged(type_of(load.buffer())) || size_of(type_of(load.buffer())) != size ||
        kernel.buffers[static_cast<size_t>(load.buffer())].is_constant)
      continue;
    const auto in = result_box(c, load.buffer(), load.arg(0), type_of(load.buffer()));
    if (!in) continue;
    staged.load = load;
    staged.in = *in;
    break;
  }
  return staged;
}

}  // namespace ingot
