// Loop and Scan with a trip count known at import: the body is inlined once for every iteration, each in a scope of its own.
// Others become loops of the program (import_control.cpp).
#include <fmt/format.h>

#include <algorithm>

#include "compiler/ops/rows.h"
#include "frontend/importer.h"
#include "frontend/text.h"

namespace ingot {
namespace {

constexpr int64_t kMostIterations = 256;
constexpr int kDeepest = 64;

Binding constant_binding(Tensor tensor) {
  Binding b;
  b.loaded = std::make_shared<const Tensor>(std::move(tensor));
  return b;
}
/// One element for a body's input: a scalar, or of rank 1 where the body says so.
Tensor one_element(const onnx::ValueInfo& input, DType type, int64_t value) {
  Tensor t(type, input.type().tensor_type().shape().dim_size() == 1 ? std::vector<int64_t>{1} : std::vector<int64_t>{});
  t.set_int(0, value);
  return t;
}

}  // namespace

const onnx::Graph* Importer::find_body(const NodeSite& site) const {
  const onnx::Attribute* a = find_attribute(site, "body");
  return a && a->has_g() ? &a->g() : nullptr;
}

/// The input of a node as a binding of its own; an omitted one is empty.
Binding Importer::input_binding(const NodeSite& site, int i) {
  Binding binding;
  if (i < site.node.input_size() && !site.node.input(i).empty()) binding.alias = find(site.frame, site.node.input(i));
  return binding;
}

/// The elements of input i when they are known; null, and noted, when they are not.
Result<Content> Importer::input_content(const NodeSite& site, int i) {
  const ValueId value = INGOT_TRY(resolve_input(site, i));
  if (!value.valid()) return invalid(fmt::format("its input {} is missing", i));
  const Content content = builder().content(value);
  if (content && !content->empty() && content->front().is_const()) return content;
  note_deciding({value});
  return Content();
}

/// Imports the body once. `inputs` are bound to its inputs; the result has a binding for each of its outputs.
Result<std::vector<Binding>> Importer::inline_body(const NodeSite& site, const onnx::Graph& body, const std::vector<Binding>& inputs,
                                                   int64_t iteration) {
  Frame inner(site.frame, fmt::format("{}/{}/", site.label, iteration));
  INGOT_TRY(bind_initialisers(inner, body));
  for (int i = 0; i < body.input_size(); ++i) inner.bindings[body.input(i).name()] = inputs[static_cast<size_t>(i)];
  std::vector<std::string_view> names;
  for (const onnx::ValueInfo& info : body.output()) names.push_back(info.name());
  auto status = import_nodes(inner, body.node(), names);
  if (!status) return std::move(status.error().add(fmt::format("in the body of node {}", quote_name(site.label))));
  std::vector<Binding> outputs;
  for (std::string_view name : names) {
    Binding binding;
    if (auto own = inner.bindings.find(name); own != inner.bindings.end()) binding = own->second;
    else binding.alias = find(inner, name);
    outputs.push_back(std::move(binding));
  }
  return outputs;
}

/// Joins one value an iteration along a new axis.
Result<ValueId> Importer::stack(const std::vector<ValueId>& parts, size_t axis) {
  if (parts.empty()) return unsupported("a scan output of no iterations");
  std::vector<ValueId> rows;
  for (ValueId v : parts) {
    Shape s = builder().shape(v);
    if (axis > s.size()) return invalid("the axis of a scan output is out of range");
    s.insert(s.begin() + static_cast<int64_t>(axis), 1);
    rows.push_back(INGOT_TRY(build_reshape(builder(), v, s)));
  }
  return build_concat(builder(), rows, axis);
}

void Importer::bind_loop_outputs(const NodeSite& site, const std::vector<Binding>& results) {
  for (int i = 0; i < site.node.output_size() && static_cast<size_t>(i) < results.size(); ++i)
    if (!site.node.output(i).empty()) site.frame.bindings[site.node.output(i)] = results[static_cast<size_t>(i)];
}

bool Importer::any_poisoned(std::vector<Binding>& bindings) {
  for (Binding& b : bindings)
    if (target_of(b).poisoned) return true;
  return false;
}

Status Importer::import_loop(const NodeSite& site) {
  auto outcome = unroll_loop(site);
  if (!outcome && outcome.error().kind == ErrorKind::Unsupported && failures_.empty())
    if (auto at_run_time = run_time_loop(site); at_run_time || at_run_time.error().kind != ErrorKind::Unsupported) outcome = std::move(at_run_time);
  if (!outcome) fail(site, outcome.error());
  return {};
}

Status Importer::unroll_loop(const NodeSite& site) {
  const onnx::Graph* body = find_body(site);
  const int states = site.node.input_size() - 2;
  if (!body || states < 0 || body->input_size() != states + 2 || body->output_size() < states + 1)
    return invalid("its body does not fit its inputs");
  if (site.frame.depth >= kDeepest) return unsupported("loops nest too deep");
  int64_t trips = -1;
  bool runs = true;
  if (!site.node.input(0).empty()) {
    const Content content = INGOT_TRY(input_content(site, 0));
    if (!content) return unsupported("its trip count is computed at run time");
    trips = content->front().int_value();
  }
  if (!site.node.input(1).empty()) {
    const Content content = INGOT_TRY(input_content(site, 1));
    if (!content) return unsupported("its condition is computed at run time");
    runs = content->front().int_value() != 0;
  }
  if (trips > kMostIterations) return unsupported(fmt::format("{} iterations; at most {} are unrolled", trips, kMostIterations));
  std::vector<Binding> state;
  for (int i = 0; i < states; ++i) state.push_back(input_binding(site, i + 2));
  std::vector<std::vector<ValueId>> scans(static_cast<size_t>(body->output_size() - states - 1));
  for (int64_t i = 0; runs && (trips < 0 || i < trips); ++i) {
    if (i >= kMostIterations) return unsupported(fmt::format("more than {} iterations", kMostIterations));
    std::vector<Binding> inputs{constant_binding(one_element(body->input(0), DType::I64, i)),
                                constant_binding(one_element(body->input(1), DType::Bool, 1))};
    inputs.insert(inputs.end(), state.begin(), state.end());
    auto outputs = INGOT_TRY(inline_body(site, *body, inputs, i));
    if (any_poisoned(outputs)) {
      poison_outputs(site);
      return {};
    }
    const ValueId condition = INGOT_TRY(resolve(outputs[0], fmt::format("{}/{}/condition", site.label, i)));
    const Content content = builder().content(condition);
    if (!content || !content->front().is_const()) {
      note_deciding({condition});
      return unsupported("its condition is computed at run time");
    }
    runs = content->front().int_value() != 0;
    state.assign(outputs.begin() + 1, outputs.begin() + 1 + states);
    for (size_t s = 0; s < scans.size(); ++s)
      scans[s].push_back(INGOT_TRY(resolve(outputs[s + 1 + static_cast<size_t>(states)], fmt::format("{}/{}/scan{}", site.label, i, s))));
  }
  for (size_t s = 0; s < scans.size(); ++s) {
    Binding b;
    b.value = INGOT_TRY(stack(scans[s], 0));
    state.push_back(b);
  }
  bind_loop_outputs(site, state);
  return {};
}

Result<std::vector<int64_t>> Importer::scan_list(const NodeSite& site, const char* name, size_t count) const {
  std::vector<int64_t> list(count, 0);
  const onnx::Attribute* a = find_attribute(site, name);
  if (!a) return list;
  if (a->ints_size() != static_cast<int>(count)) return invalid(fmt::format("{} has {} entries instead of {}", name, a->ints_size(), count));
  for (size_t i = 0; i < count; ++i) list[i] = a->ints(static_cast<int>(i));
  return list;
}

Status Importer::import_scan(const NodeSite& site) {
  auto outcome = unroll_scan(site);
  if (!outcome && outcome.error().kind == ErrorKind::Unsupported && failures_.empty() && site.opset >= 9)
    if (auto at_run_time = run_time_scan(site); at_run_time || at_run_time.error().kind != ErrorKind::Unsupported) outcome = std::move(at_run_time);
  if (!outcome) fail(site, outcome.error());
  return {};
}

/// One scanned input of Scan: a value, the axis it is cut along, and whether from the end.
struct Importer::ScanInput {
  ValueId value;
  size_t axis = 0;
  bool reversed = false;
};
/// The iterations of a scan over sequences; `first` numbers them in names.
struct Importer::ScanRows {
  const std::vector<ScanInput>& sequences;
  int64_t length = 0, first = 0;
};

Result<std::vector<Importer::ScanInput>> Importer::scan_inputs(const NodeSite& site, int first, int64_t& length) {
  std::vector<ScanInput> list;
  const auto count = static_cast<size_t>(site.node.input_size() - first);
  const auto axes = INGOT_TRY(scan_list(site, "scan_input_axes", count)), reversed = INGOT_TRY(scan_list(site, "scan_input_directions", count));
  for (size_t i = 0; i < count; ++i) {
    const int input = first + static_cast<int>(i);
    ScanInput s{INGOT_TRY(resolve_input(site, input)), 0, reversed[i] != 0};
    if (!s.value.valid()) return invalid(fmt::format("its input {} is missing", input));
    const Shape shape = builder().shape(s.value);
    s.axis = static_cast<size_t>(INGOT_TRY(wrap_axis(axes[i], shape.size())));
    const auto n = shape[s.axis].as_int();
    if (!n) return unsupported("a sequence of dynamic length; fix it with --shape");
    if (i > 0 && *n != length) return invalid("its sequences differ in length");
    length = *n;
    list.push_back(s);
  }
  if (length > kMostIterations) return unsupported(fmt::format("{} iterations; at most {} are unrolled", length, kMostIterations));
  return list;
}

/// The iterations of one scan: `state` becomes the last, the result has what each iteration collects. Null: the body has
/// nodes that cannot be imported.
Result<std::optional<std::vector<std::vector<ValueId>>>> Importer::scan_rows(const NodeSite& site,
                                                                             const onnx::Graph& body,
                                                                             std::vector<Binding>& state,
                                                                             const ScanRows& rows) {
  const size_t states = state.size();
  std::vector<std::vector<ValueId>> scans(static_cast<size_t>(body.output_size()) - states);
  for (int64_t i = 0; i < rows.length; ++i) {
    std::vector<Binding> inputs = state;
    for (const ScanInput& s : rows.sequences) {
      Shape rest = builder().shape(s.value);
      rest.erase(rest.begin() + static_cast<int64_t>(s.axis));
      const ValueId row = INGOT_TRY(build_slice(builder(), s.value, s.axis, s.reversed ? rows.length - 1 - i : i, 1));
      Binding b;
      b.value = INGOT_TRY(build_reshape(builder(), row, rest));
      inputs.push_back(b);
    }
    const int64_t iteration = rows.first + i;
    auto outputs = INGOT_TRY(inline_body(site, body, inputs, iteration));
    if (any_poisoned(outputs)) return std::optional<std::vector<std::vector<ValueId>>>();
    state.assign(outputs.begin(), outputs.begin() + static_cast<int64_t>(states));
    for (size_t s = 0; s < scans.size(); ++s)
      scans[s].push_back(
          INGOT_TRY(resolve(outputs[s + states], fmt::format("{}/{}/scan{}", site.label, iteration, s))));
  }
  return std::optional(std::move(scans));
}

/// Opset 8: everything has a batch axis in front, the sequences run along the second, and each item scans by itself.
Status Importer::unroll_batched_scan(const NodeSite& site) {
  const onnx::Graph* body = find_body(site);
  const onnx::Attribute* count = find_attribute(site, "num_scan_inputs");
  const int scanned = count ? static_cast<int>(count->i()) : 0, states = site.node.input_size() - 1 - scanned;
  if (!body || scanned < 1 || states < 0 || body->input_size() != states + scanned || body->output_size() < states)
    return invalid("its body does not fit its inputs");
  if (!site.node.input(0).empty()) return unsupported("lengths of its own for each item of the batch");
  const auto reversed = INGOT_TRY(scan_list(site, "directions", static_cast<size_t>(scanned)));
  std::vector<ValueId> all;
  for (int i = 1; i < site.node.input_size(); ++i) {
    all.push_back(INGOT_TRY(resolve_input(site, i)));
    if (!all.back().valid() || builder().shape(all.back()).empty()) return invalid("an input without a batch axis");
  }
  const Shape first = builder().shape(all.back());
  if (first.size() < 2 || !first[0].as_int() || !first[1].as_int())
    return unsupported("a batch or length that is dynamic");
  const int64_t batch = *first[0].as_int(), length = *first[1].as_int();
  if (batch * length > kMostIterations)
    return unsupported(fmt::format("{} iterations; at most {} are unrolled", batch * length, kMostIterations));
  std::vector<std::vector<ValueId>> results(static_cast<size_t>(body->output_size()));
  for (int64_t item = 0; item < batch; ++item) {
    std::vector<Binding> state;
    std::vector<ScanInput> sequences;
    for (size_t i = 0; i < all.size(); ++i) {
      Shape rest = builder().shape(all[i]);
      rest.erase(rest.begin());
      const ValueId own =
          INGOT_TRY(build_reshape(builder(), INGOT_TRY(build_slice(builder(), all[i], 0, item, 1)), rest));
      const auto sequence = i - static_cast<size_t>(states);
      if (i >= static_cast<size_t>(states)) sequences.push_back({own, 0, reversed[sequence] != 0});
      else state.emplace_back().value = own;
    }
    const auto rows = INGOT_TRY(scan_rows(site, *body, state, {sequences, length, item * length}));
    if (!rows) {
      poison_outputs(site);
      return {};
    }
    for (size_t s = 0; s < state.size(); ++s)
      results[s].push_back(INGOT_TRY(resolve(state[s], fmt::format("{}/state{}", site.label, s))));
    for (size_t s = 0; s < rows->size(); ++s) results[state.size() + s].push_back(INGOT_TRY(stack((*rows)[s], 0)));
  }
  std::vector<Binding> bindings;
  for (const auto& parts : results) bindings.emplace_back().value = INGOT_TRY(stack(parts, 0));
  bind_loop_outputs(site, bindings);
  return {};
}

Status Importer::unroll_scan(const NodeSite& site) {
  if (site.opset < 9) return unroll_batched_scan(site);
  const onnx::Graph* body = find_body(site);
  const onnx::Attribute* count = find_attribute(site, "num_scan_inputs");
  const int scanned = count ? static_cast<int>(count->i()) : 0, states = site.node.input_size() - scanned;
  if (!body || scanned < 1 || states < 0 || body->input_size() != site.node.input_size() || body->output_size() < states)
    return invalid("its body does not fit its inputs");
  if (site.frame.depth >= kDeepest) return unsupported("loops nest too deep");
  int64_t length = 0;
  const std::vector<ScanInput> sequences = INGOT_TRY(scan_inputs(site, states, length));
  const auto collected = static_cast<size_t>(body->output_size() - states);
  const auto axes = INGOT_TRY(scan_list(site, "scan_output_axes", collected));
  const auto reversed = INGOT_TRY(scan_list(site, "scan_output_directions", collected));
  std::vector<Binding> state;
  for (int i = 0; i < states; ++i) state.push_back(input_binding(site, i));
  const auto rows = INGOT_TRY(scan_rows(site, *body, state, {sequences, length, 0}));
  if (!rows) {
    poison_outputs(site);
    return {};
  }
  std::vector<std::vector<ValueId>> scans = *rows;
  for (size_t s = 0; s < collected; ++s)
    if (reversed[s]) std::reverse(scans[s].begin(), scans[s].end());
  for (size_t s = 0; s < collected; ++s) {
    const size_t rank = scans[s].empty() ? 1 : builder().shape(scans[s][0]).size() + 1;
    Binding b;
    b.value = INGOT_TRY(stack(scans[s], static_cast<size_t>(INGOT_TRY(wrap_axis(axes[s], rank)))));
    state.push_back(b);
  }
  bind_loop_outputs(site, state);
  return {};
}

}  // namespace ingot
