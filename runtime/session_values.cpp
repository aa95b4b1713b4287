// The part of Session that reads elements of inputs: shapes, counts and switches that a model takes as tensors. They are
// symbols of the shape program, bound before a call is planned.
#include <fmt/format.h>

#include <algorithm>

#include "runtime/executor.h"

namespace ingot::runtime {
namespace {

Status too_few(const Binding& input, const SymbolInfo& symbol) {
  return invalid(fmt::format("input '{}' has no element {}, which decides {}", input.name, symbol.element, symbol.name));
}

}  // namespace

bool needs_input_values(const Program& program) {
  return std::any_of(program.symbols.begin(), program.symbols.end(), [](const SymbolInfo& s) { return s.input >= 0; });
}

bool decides_sizes(const Program& program, size_t input) {
  return std::any_of(program.symbols.begin(), program.symbols.end(),
                     [&](const SymbolInfo& s) { return s.input == static_cast<int32_t>(input); });
}

Status Session::read_values(const std::vector<Tensor>& inputs) {
  const Program& p = engine_->program();
  if (!needs_input_values(p)) return {};
  INGOT_TRY(check_types(inputs));
  input_values_.assign(p.symbols.size(), 0);
  for (size_t s = 0; s < p.symbols.size(); ++s) {
    const SymbolInfo& symbol = p.symbols[s];
    if (symbol.input < 0) continue;
    const Tensor& t = inputs[static_cast<size_t>(symbol.input)];
    if (symbol.element >= t.count()) return too_few(p.inputs[static_cast<size_t>(symbol.input)], symbol);
    input_values_[s] = t.bits_at(symbol.element);
  }
  return {};
}

Status Session::read_values(std::span<const DeviceTensor> inputs, Stream* stream) {
  const Program& p = engine_->program();
  if (!needs_input_values(p)) return {};
  Device& device = *engine_->device();
  std::vector<Tensor> host;
  for (size_t i = 0; i < p.inputs.size() && i < inputs.size(); ++i) {
    const bool read = decides_sizes(p, i);
    INGOT_TRY(checked_count(inputs[i].dims, size_of(p.inputs[i].type)));
    host.push_back(read ? Tensor(p.inputs[i].type, inputs[i].dims) : Tensor(p.inputs[i].type, {0}));
    if (read) INGOT_TRY(device.copy_to_host(host[i].mutable_data(), inputs[i].data, host[i].bytes(), stream));
  }
  INGOT_TRY(device.synchronize(stream));
  return read_values(host);
}

Status Session::bind_values(std::vector<int64_t>& symbols) const {
  const Program& p = engine_->program();
  for (size_t s = 0; s < p.symbols.size(); ++s) {
    const SymbolInfo& info = p.symbols[s];
    if (info.input < 0) continue;
    symbols[s] = input_values_[s];
    if (symbols[s] < info.low || symbols[s] > info.high)
      return invalid(fmt::format("input '{}': element {} is {}; the model was built for {} to {}",
                                 p.inputs[static_cast<size_t>(info.input)].name, info.element, symbols[s], info.low, info.high));
  }
  return {};
}

Result<std::vector<Dims>> Session::output_dims(const std::vector<Tensor>& inputs) {
  INGOT_TRY(check_types(inputs));
  INGOT_TRY(read_values(inputs));
  std::vector<Dims> dims;
  for (const Tensor& t : inputs) dims.push_back(t.dims());
  return INGOT_TRY(plan_for(dims))->output_dims;
}

Result<std::vector<Dims>> Session::output_dims(std::span<const DeviceTensor> inputs, Stream* stream) {
  if (!engine_->program().scripts.empty())
    return unsupported("the output dims of a model whose course is decided at run time");
  std::vector<Dims> dims;
  for (const DeviceTensor& t : inputs) dims.push_back(t.dims);
  INGOT_TRY(read_values(inputs, stream ? stream : stream_.get()));
  return INGOT_TRY(plan_for(dims))->output_dims;
}

}  // namespace ingot::runtime
