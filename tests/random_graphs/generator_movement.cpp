// Steps that move elements.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "compiler/expr/simplify.h"
#include "tests/random_graphs/generator.h"

namespace ingot::testing {

bool Generator::permute() {
  const ValueId x = value_of_rank(1, 5, false);
  std::vector<int64_t> perm(rank(x));
  std::iota(perm.begin(), perm.end(), 0);
  if (chance(0.4) && perm.size() > 1) std::swap(perm[perm.size() - 1], perm[perm.size() - 2]);
  else std::shuffle(perm.begin(), perm.end(), rng_);
  return keep(transpose(x, perm));
}

bool Generator::reshape_step() {
  const ValueId x = value_of_rank(0, 5, false);
  Shape s = shape(x);
  const int64_t form = below(5);
  if (form == 0) s = {element_count(s)};
  if (form == 1 && s.size() >= 2) {  // merge two
    const auto at = below(static_cast<int64_t>(s.size()) - 1);
    s[static_cast<size_t>(at)] = simplify(s[static_cast<size_t>(at)] * s[static_cast<size_t>(at) + 1]);
    s.erase(s.begin() + at + 1);
  }
  if (form == 2 && !s.empty()) {  // split one
    const auto at = below(static_cast<int64_t>(s.size()));
    for (int64_t factor : {2, 3, 4, 5, 7, 8}) {
      const auto d = s[static_cast<size_t>(at)].as_int();
      if (!d || *d % factor || chance(0.4)) continue;
      s[static_cast<size_t>(at)] = *d / factor;
      s.insert(s.begin() + at + below(2), Expr(factor));
      break;
    }
  }
  if (form == 3) s.insert(s.begin() + below(static_cast<int64_t>(s.size()) + 1), Expr(1));
  if (form == 4) std::erase_if(s, [](const Expr& d) { return d.is_const(1); });
  return keep(reshape(x, s));
}

bool Generator::slice() {
  const ValueId x = value_of_rank(1, 5, false);
  std::vector<Expr> starts, steps, sizes;
  for (const Expr& d : shape(x)) {
    starts.emplace_back(0), steps.emplace_back(1), sizes.push_back(d);
    if (chance(0.4)) continue;
    const auto n = d.as_int();
    if (!n || *n == 0) {  // all of it backwards, or all but the first
      if (chance(0.5)) starts.back() = simplify(d - 1), steps.back() = -1;
      else if (chance(0.5)) starts.back() = 1, sizes.back() = simplify(max(d - 1, 0));
      continue;
    }
    const int64_t step = 1 + below(3), start = below(*n), most = (*n - 1 - start) / step + 1;
    const int64_t size = chance(0.05) ? 0 : 1 + below(most);
    const bool back = chance(0.25);
    starts.back() = back ? start + (size ? size - 1 : 0) * step : start;
    steps.back() = back ? -step : step;
    sizes.back() = size;
  }
  return keep(
      add("Slice", {x}, {{"starts", field_text(starts)}, {"steps", field_text(steps)}, {"sizes", field_text(sizes)}}));
}

/// Parts of one axis, each of which may go its own way.
bool Generator::split() {
  const ValueId x = value_of_rank(1, 4, false);
  const auto axis = static_cast<size_t>(below(static_cast<int64_t>(rank(x))));
  const auto n = shape(x)[axis].as_int();
  if (!n || *n < 2) return false;
  const int64_t cut = 1 + below(*n - 1);
  bool any = false;
  for (const auto& [from, size] : {std::pair<int64_t, int64_t>{0, cut}, {cut, *n - cut}}) {
    std::vector<Expr> starts(rank(x), 0), steps(rank(x), 1), sizes = shape(x);
    starts[axis] = from, sizes[axis] = size;
    any |= keep(add("Slice", {x},
                    {{"starts", field_text(starts)}, {"steps", field_text(steps)}, {"sizes", field_text(sizes)}}));
  }
  return any;
}

bool Generator::concat() {
  const ValueId x = value_of_rank(1, 4, false);
  const auto axis = static_cast<size_t>(below(static_cast<int64_t>(rank(x))));
  std::vector<ValueId> parts{x};
  const int64_t more = 1 + below(3);
  for (int64_t i = 0; i < more; ++i) {
    const ValueId other = find([&](const TensorType& t) {
      if (t.dtype != type(x).dtype || t.rank() != rank(x)) return false;
      for (size_t d = 0; d < t.rank(); ++d)
        if (d != axis && !proves_equal(t.shape[d], shape(x)[d])) return false;
      return true;
    });
    Shape s = shape(x);
    s[axis] = chance(0.8) ? Expr(1 + below(4)) : pick_dim();
    parts.push_back(chance(0.6) && other.valid() ? other : fresh(type(x).dtype, s));
  }
  if (chance(0.5)) std::swap(parts.front(), parts.back());
  return keep(add("Concat", parts, {{"axis", std::to_string(axis)}}));
}

bool Generator::pad() {
  const ValueId x = value_of_rank(1, 4, false);
  std::vector<Expr> begins, ends;
  bool wide_enough = true;
  for (const Expr& d : shape(x)) {
    const int64_t most = chance(0.5) ? 3 : 1;
    begins.emplace_back(below(most)), ends.emplace_back(below(most));
    wide_enough &= d.as_int() && *d.as_int() >= 3;
    if (d.as_int() && *d.as_int() >= 2 && chance(0.1)) begins.back() = -1;
  }
  const std::string mode = wide_enough ? pick_name({"constant", "edge", "reflect", "wrap"}) : "constant";
  std::vector<ValueId> in{x};
  if (mode == "constant" && chance(0.5)) in.push_back(numbers(type(x).dtype, {}, {1.5}));
  FieldTexts attrs{{"begins", field_text(begins)}, {"ends", field_text(ends)}, {"mode", field_text(mode)}};
  return keep(add("Pad", in, attrs));
}

bool Generator::expand() {
  const ValueId x = value_of_rank(0, 3, false);
  Shape s = shape(x);
  if (chance(0.3) && !s.empty()) {
    std::vector<Expr> repeats;
    for (size_t i = 0; i < s.size(); ++i) repeats.emplace_back(1 + below(2));
    return keep(add("Tile", {x}, {{"shape", field_text(repeats)}}));
  }
  for (Expr& d : s)
    if (d.is_const(1) && chance(0.7)) d = pick_dim();
  if (chance(0.6)) s.insert(s.begin(), pick_dim());
  return keep(add("Expand", {x}, {{"shape", field_text(s)}}));
}

bool Generator::gather() {
  const ValueId x = value_of_rank(1, 4, false);
  const auto axis = static_cast<size_t>(below(static_cast<int64_t>(rank(x))));
  const Expr d = shape(x)[axis];
  const auto least = d.as_int() ? *d.as_int() : d.op() == ExprOp::Symbol ? d.low() : 0;
  if (least < 1) return false;
  const bool elements = chance(0.35);
  Shape s = elements ? shape(x) : random_shape(static_cast<size_t>(below(3)));
  if (elements) s[axis] = 1 + below(4);
  const ValueId indices = fresh(chance(0.6) ? DType::I64 : DType::I32, s, 0.6);
  return keep(add(elements ? "GatherElements" : "Gather", {x, indices}, {{"axis", std::to_string(axis)}}));
}

bool Generator::triangle() {
  const ValueId x = value_of_rank(2, 4, false);
  return keep(add("Trilu", {x}, {{"upper", chance(0.5) ? "true" : "false"}, {"k", std::to_string(below(3) - 1)}}));
}

}  // namespace ingot::testing
