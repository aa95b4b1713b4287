// Statements over lanes. The points of the domain (for a Contract: of batch, m and n) are taken kLanes at a time; loops and
// reductions inside a point run their axes one value after the other for all lanes at once.
#include "codegen/kernel/interpret.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>

#include "codegen/kernel/lanes.h"

namespace ingot {
namespace {

std::vector<std::string> names_of(const std::vector<Axis>& axes) {
  std::vector<std::string> names;
  for (const Axis& a : axes) names.push_back(a.var.name());
  return names;
}

class Interpreter {
 public:
  Interpreter(const Kernel& kernel, std::span<void* const> buffers, std::span<const int64_t> sizes,
              const std::unordered_map<std::string, int64_t>& dims)
      : kernel_(kernel), dims_(dims) {
    for (size_t i = 0; i < buffers.size(); ++i)
      memory_.push_back({kernel.buffers[i].type, static_cast<char*>(buffers[i]), sizes[i], false});
    for (const auto& [name, value] : dims) bind(name, DType::I64).fill(value);
  }

  Status run() {
    const Contract* contract = kernel_.contract();
    const Attend* attend = kernel_.attend();
    std::vector<Axis> axes = kernel_.domain;
    if (attend)
      for (auto* part : {&attend->batch, &attend->m, &attend->d}) axes.insert(axes.end(), part->begin(), part->end());
    if (contract)
      for (auto* part : {&contract->batch, &contract->m, &contract->n}) axes.insert(axes.end(), part->begin(), part->end());
    const std::vector<int64_t> extents = INGOT_TRY(extents_of(axes));
    int64_t total = 1;
    for (int64_t e : extents) total *= e;
    if (contract) clear_parts(*contract);
    for (int64_t first = 0; first < total && fault_.empty(); first += kLanes) {
      const int lanes = static_cast<int>(std::min<int64_t>(kLanes, total - first));
      bind_points(axes, extents, first, lanes);
      if (contract) run_contract(*contract, lanes);
      else if (attend) run_attend(*attend, lanes);
      else run_body(kernel_.body, nullptr, lanes);
      if (!status_) return status_;
    }
    if (!fault_.empty()) return make_error(ErrorKind::Internal, fmt::format("kernel {}: {}", kernel_.name, fault_));
    return {};
  }

 private:
  Register& bind(const std::string& name, DType type) {
    auto& slot = registers_[name];
    if (!slot) {
      slot = std::make_unique<Register>(type);
      scope_[name] = slot.get();
    }
    return *slot;
  }
  Result<int64_t> extent(const Expr& e) {
    auto v = evaluate_int(e, dims_);
    if (!v) return make_error(ErrorKind::Internal, fmt::format("kernel {}: extent {} is not known", kernel_.name, to_string(e)));
    return *v;
  }
  Result<std::vector<int64_t>> extents_of(const std::vector<Axis>& axes) {
    std::vector<int64_t> list;
    for (const Axis& a : axes) list.push_back(INGOT_TRY(extent(a.extent)));
    return list;
  }
  void bind_points(const std::vector<Axis>& axes, const std::vector<int64_t>& extents, int64_t first, int lanes) {
    for (int lane = 0; lane < lanes; ++lane) {
      int64_t rest = first + lane;
      for (size_t i = axes.size(); i-- > 0;) {
        bind(axes[i].var.name(), DType::I64).i64()[lane] = rest % extents[i];
        rest /= extents[i];
      }
    }
  }
  /// Calls f once for every value of the axes, bound for all lanes.
  template <class F>
  void for_each(const std::vector<Axis>& axes, const std::vector<int64_t>& extents, F f) {
    int64_t total = 1;
    for (int64_t e : extents) total *= e;
    std::vector<int64_t> at(axes.size(), 0);
    for (size_t i = 0; i < axes.size(); ++i) bind(axes[i].var.name(), DType::I64).fill(0);
    for (int64_t linear = 0; linear < total && fault_.empty(); ++linear) {
      f(linear);
      for (size_t i = axes.size(); i-- > 0;) {
        at[i] = at[i] + 1 == extents[i] ? 0 : at[i] + 1;
        bind(axes[i].var.name(), DType::I64).fill(at[i]);
        if (at[i] != 0) break;
      }
    }
  }

  LaneProgram& program(const void* key, const std::vector<Expr>& roots, const std::vector<std::string>& varying) {
    auto& slot = programs_[key];
    if (!slot) slot = std::make_unique<LaneProgram>(roots, varying);
    return *slot;
  }
  void evaluate(LaneProgram& p, int lanes, bool prepare = true) {
    if (prepare) p.prepare(scope_, memory_, lanes);
    p.run(scope_, memory_, lanes);
    if (fault_.empty()) fault_ = p.fault();
  }

  void run_body(const Body& body, Register* mask, int lanes) {
    for (const Stmt& s : body) {
      if (auto* let = s.as<Let>()) run_let(*let, lanes);
      if (auto* store = s.as<Store>()) run_store(*store, mask, lanes);
      if (auto* loop = s.as<Loop>()) run_loop(*loop, mask, lanes);
      if (auto* reduce = s.as<Reduce>()) run_reduce(*reduce, lanes);
      if (auto* alloc = s.as<Alloc>()) run_alloc(*alloc);
      if (auto* branch = s.as<If>()) run_if(*branch, mask, lanes);
      if (!fault_.empty() || !status_) return;
    }
  }
  void run_let(const Let& let, int lanes) {
    LaneProgram& p = program(&let, {let.value}, {});
    evaluate(p, lanes);
    bind(let.var.name(), let.value.type()).copy_from(p.root(0), lanes);
  }
  void run_store(const Store& store, Register* mask, int lanes) {
    LaneProgram& p = program(&store, {store.index, store.value}, {});
    evaluate(p, lanes);
    if (fault_.empty()) store_lanes(memory_[static_cast<size_t>(store.buffer)], p.root(0), p.root(1), mask, lanes, fault_);
  }
  void run_loop(const Loop& loop, Register* mask, int lanes) {
    auto extents = extents_of(loop.axes);
    if (!extents) return void(status_ = extents.error());
    for_each(loop.axes, *extents, [&](int64_t) { run_body(loop.body, mask, lanes); });
  }
  void run_alloc(const Alloc& alloc) {
    auto size = extent(alloc.size);
    if (!size) return void(status_ = size.error());
    auto& bytes = scratch_[alloc.buffer];
    bytes.resize(static_cast<size_t>(*size) * kLanes * size_of(alloc.type));
    if (memory_.size() <= static_cast<size_t>(alloc.buffer)) memory_.resize(static_cast<size_t>(alloc.buffer) + 1);
    memory_[static_cast<size_t>(alloc.buffer)] = {alloc.type, bytes.data(), *size, true};
  }
  void run_if(const If& branch, Register* mask, int lanes) {
    LaneProgram& p = program(&branch, {branch.condition}, {});
    evaluate(p, lanes);
    Register both(DType::Bool);
    for (int i = 0; i < lanes; ++i) both.i64()[i] = p.root(0).i64()[i] && (!mask || mask->i64()[i]);
    run_body(branch.body, &both, lanes);
  }

  void run_reduce(const Reduce& r, int lanes) {
    auto extents = extents_of(r.axes);
    if (!extents) return void(status_ = extents.error());
    LaneProgram& p = program(&r, {r.value}, names_of(r.axes));
    p.prepare(scope_, memory_, lanes);
    if (r.combine >= Combine::ArgMax) return run_arg(r, p, *extents, lanes);
    Register acc(r.value.type());
    LaneProgram& init = program(&r.init, {r.init}, {});
    evaluate(init, lanes);
    acc.copy_from(init.root(0), lanes);
    accumulate(r.combine, p, acc, r.axes, *extents, lanes);
    bind(r.result.name(), r.value.type()).copy_from(acc, lanes);
  }
  /// acc = acc combined with the value of p for each value of the axes.
  void accumulate(Combine combine, LaneProgram& p, Register& acc, const std::vector<Axis>& axes, const std::vector<int64_t>& extents, int lanes) {
    const DType type = acc.type();
    const Expr x = Expr::local("acc'", type), y = Expr::local("value'", type);
    LaneProgram pair({combine_pair(combine, x, y)}, {"acc'", "value'"});
    LaneScope scope{{"acc'", &acc}, {"value'", &p.root(0)}};
    for_each(axes, extents, [&](int64_t) {
      evaluate(p, lanes, false);
      if (combine == Combine::Sum && type == DType::F32) {
        for (int i = 0; i < lanes; ++i) acc.f32()[i] += p.root(0).f32()[i];
        return;
      }
      pair.run(scope, memory_, lanes);
      acc.copy_from(pair.root(0), lanes);
    });
  }
  void run_arg(const Reduce& r, LaneProgram& p, const std::vector<int64_t>& extents, int lanes) {
    const bool is_max = r.combine == Combine::ArgMax;
    Register& best = bind(r.result.name(), DType::I64);
    std::vector<double> extreme(kLanes, 0);
    std::vector<int64_t> exact(kLanes, 0);
    for_each(r.axes, extents, [&](int64_t linear) {
      evaluate(p, lanes, false);
      const DType type = r.value.type();
      for (int i = 0; i < lanes; ++i) {
        const double v = type == DType::F32 ? p.root(0).f32()[i] : type == DType::F64 ? p.root(0).f64()[i] : 0;
        const int64_t k = is_float(type) ? 0 : p.root(0).i64()[i];
        const auto at = static_cast<size_t>(i);
        const bool unsigned_big = type == DType::U64;
        const auto uk = static_cast<uint64_t>(k), ue = static_cast<uint64_t>(exact[at]);
        const bool better = is_float(type) ? (v != v && extreme[at] == extreme[at]) || (is_max ? v > extreme[at] : v < extreme[at])
                            : unsigned_big ? (is_max ? uk > ue : uk < ue) : (is_max ? k > exact[at] : k < exact[at]);
        const bool equal = is_float(type) ? v == extreme[at] || (v != v && extreme[at] != extreme[at]) : k == exact[at];
        if (linear == 0 || better || (equal && r.last)) {
          best.i64()[i] = linear;
          extreme[at] = v;
          exact[at] = k;
        }
      }
    });
  }
  void run_contract(const Contract& c, int lanes) {
    auto extents = extents_of(c.k);
    if (!extents) return void(status_ = extents.error());
    const DType type = c.acc.type();
    LaneProgram& p = program(&c, {c.a * c.b}, names_of(c.k));
    if (!c.group.empty()) return run_groups(c, p, *extents, lanes);
    p.prepare(scope_, memory_, lanes);
    Register acc(type);
    acc.fill(0);
    accumulate(Combine::Sum, p, acc, c.k, *extents, lanes);
    bind(c.acc.name(), type).copy_from(acc, lanes);
    run_body(c.rows, nullptr, lanes);
    run_body(c.epilogue, nullptr, lanes);
    if (c.parts.width > 0 && fault_.empty()) add_parts(c, lanes);
  }
  void clear_parts(const Contract& c) {
    for (const Store& sum : c.parts.sums) {
      const LaneMemory& m = memory_[static_cast<size_t>(sum.buffer)];
      std::fill_n(reinterpret_cast<float*>(m.data), m.count, 0.0f);
    }
  }
  /// The values of some results, to the sums of their parts.
  void add_parts(const Contract& c, int lanes) {
    Register& part = bind(c.parts.part.var.name(), DType::I64);
    Register& n = *scope_.at(c.n[0].var.name());
    for (int i = 0; i < lanes; ++i) part.i64()[i] = n.i64()[i] / c.parts.width;
    for (const Store& sum : c.parts.sums) {
      LaneProgram& p = program(&sum, {sum.index, sum.value}, {});
      evaluate(p, lanes);
      if (!fault_.empty()) return;
      float* sums = reinterpret_cast<float*>(memory_[static_cast<size_t>(sum.buffer)].data);
      for (int i = 0; i < lanes; ++i) sums[p.root(0).i64()[i]] += p.root(1).f32()[i];
    }
  }
  void run_groups(const Contract& c, LaneProgram& terms, const std::vector<int64_t>& k, int lanes) {
    auto extents = extents_of(c.group);
    if (!extents) return void(status_ = extents.error());
    const DType type = c.combined.type();
    const Expr x = Expr::local("acc'", type), y = Expr::local("value'", type);
    LaneProgram pair({combine_pair(c.combine, x, y)}, {"acc'", "value'"});
    LaneProgram& start = program(&c.combined, {identity_of(c.combine, type)}, {});
    evaluate(start, lanes);
    Register all(type);
    all.copy_from(start.root(0), lanes);
    for_each(c.group, *extents, [&](int64_t) {
      Register acc(c.acc.type());
      acc.fill(0);
      terms.prepare(scope_, memory_, lanes);
      accumulate(Combine::Sum, terms, acc, c.k, k, lanes);
      bind(c.acc.name(), c.acc.type()).copy_from(acc, lanes);
      LaneProgram& value = program(&c.value, {c.value}, {});
      evaluate(value, lanes);
      pair.run({{"acc'", &all}, {"value'", &value.root(0)}}, memory_, lanes);
      all.copy_from(pair.root(0), lanes);
    });
    bind(c.combined.name(), type).copy_from(all, lanes);
    run_body(c.rows, nullptr, lanes);
    run_body(c.epilogue, nullptr, lanes);
  }

  /// The logits of the key that is bound.
  Register& score_of(const Attend& t, const std::vector<int64_t>& channels, int lanes) {
    LaneProgram& p = program(&t.q, {t.q * t.key}, names_of(t.k));
    p.prepare(scope_, memory_, lanes);
    Register dot(DType::F32);
    dot.fill(0);
    accumulate(Combine::Sum, p, dot, t.k, channels, lanes);
    bind(t.dot.name(), DType::F32).copy_from(dot, lanes);
    LaneProgram& score = program(&t.score, {t.score}, {});
    evaluate(score, lanes);
    return score.root(0);
  }
  void run_attend(const Attend& t, int lanes) {
    auto keys = extents_of(t.n), channels = extents_of(t.k);
    if (!keys) return void(status_ = keys.error());
    if (!channels) return void(status_ = channels.error());
    std::vector<float> top(kLanes, -std::numeric_limits<float>::infinity()), sum(kLanes, 0), acc(kLanes, 0);
    for_each(t.n, *keys, [&](int64_t) {
      float* s = score_of(t, *channels, lanes).f32();
      for (int i = 0; i < lanes; ++i) top[i] = s[i] > top[i] || s[i] != s[i] ? s[i] : top[i];
    });
    for_each(t.n, *keys, [&](int64_t) {
      float* s = score_of(t, *channels, lanes).f32();
      LaneProgram& value = program(&t.value, {t.value}, {});
      evaluate(value, lanes);
      for (int i = 0; i < lanes; ++i) {
        const bool none = t.no_logit == NoLogit::Zero && std::isinf(top[i]) && top[i] < 0;
        const float w = none ? 0 : std::exp(s[i] - top[i]);
        sum[i] += w;
        acc[i] += w * value.root(0).f32()[i];
      }
    });
    Register& result = bind(t.acc.name(), DType::F32);
    for (int i = 0; i < lanes; ++i) {
      const bool nan = sum[i] != sum[i], none = t.no_logit == NoLogit::Nan ? false : sum[i] == 0 || (nan && t.no_logit == NoLogit::NanIsZero);
      result.f32()[i] = none ? 0 : acc[i] / sum[i];
    }
    run_body(t.epilogue, nullptr, lanes);
  }

  const Kernel& kernel_;
  const std::unordered_map<std::string, int64_t>& dims_;
  std::vector<LaneMemory> memory_;
  std::unordered_map<std::string, std::unique_ptr<Register>> registers_;
  LaneScope scope_;
  std::unordered_map<const void*, std::unique_ptr<LaneProgram>> programs_;
  std::unordered_map<int, std::vector<char>> scratch_;
  std::string fault_;
  Status status_;
};

}  // namespace

Status interpret(const Kernel& kernel, std::span<void* const> buffers, std::span<const int64_t> sizes,
                 const std::unordered_map<std::string, int64_t>& dims) {
  INGOT_CHECK(buffers.size() == kernel.buffers.size() && sizes.size() == buffers.size(), "interpret: wrong number of buffers");
  return Interpreter(kernel, buffers, sizes, dims).run();
}

}  // namespace ingot
