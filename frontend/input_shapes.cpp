#include "frontend/input_shapes.h"

#include <fmt/format.h>

#include <algorithm>

#include "frontend/onnx_ir.pb.h"
#include "frontend/onnx_weights.h"
#include "frontend/text.h"

namespace ingot {
namespace {

/// One dimension of a --shape option: "64", "1..64", "N", "N=1..64", "?".
struct DimText {
  std::string name;
  std::optional<SymbolRange> range;
};

std::optional<SymbolRange> parse_range(std::string_view text) {
  const size_t dots = text.find("..");
  const auto low = parse_int(text.substr(0, dots));
  const auto high = dots == std::string_view::npos ? low : parse_int(text.substr(dots + 2));
  if (!low || !high || *low < 0 || *high < *low || *high > kNoLimit) return std::nullopt;
  return SymbolRange{*low, *high};
}

std::optional<DimText> parse_dim(const std::string& text) {
  if (text.empty() || text == "?" || text == "*" || text == "-1") return DimText{};
  const size_t equals = text.find('=');
  DimText dim;
  std::string_view rest = text;
  if (equals != std::string::npos || !(text[0] >= '0' && text[0] <= '9')) {
    dim.name = text.substr(0, equals);
    if (dim.name != dimension_name(dim.name)) return std::nullopt;
    if (equals == std::string::npos) return dim;
    rest = rest.substr(equals + 1);
  }
  dim.range = parse_range(rest);
  if (!dim.range) return std::nullopt;
  return dim;
}

const char* kind_of(const onnx::Type& type) {
  switch (type.value_case()) {
    case onnx::Type::kSequenceType: return "sequence";
    case onnx::Type::kMapType: return "map";
    case onnx::Type::kOpaqueType: return "opaque type";
    case onnx::Type::kSparseTensorType: return "sparse tensor";
    case onnx::Type::kOptionalType: return "optional";
    default: return "type";
  }
}

}  // namespace

std::string InputShapes::fresh(const std::string& wanted) {
  std::string name = wanted;
  for (int i = 2; !taken_.insert(name).second; ++i) name = fmt::format("{}_{}", wanted, i);
  return name;
}

Result<InputShapes::Input> InputShapes::read(const onnx::ValueInfo& info) {
  const std::string who = fmt::format("input {}", quote_name(info.name()));
  if (!info.has_type() || info.type().value_case() == onnx::Type::VALUE_NOT_SET) return invalid(who + " has no type");
  if (!info.type().has_tensor_type())
    return unsupported(fmt::format("{} is a {}; only tensors are supported", who, kind_of(info.type())));
  const onnx::Type::TensorT& type = info.type().tensor_type();
  Input input{info.name(), DType::F32, {}};
  auto dtype = dtype_from_onnx(type.elem_type());
  if (!dtype) return std::move(dtype.error().add("of " + who));
  input.dtype = *dtype;
  auto option = options_.shapes.find(info.name());
  if (!type.has_shape()) {
    if (option == options_.shapes.end())
      return unsupported(fmt::format("{} has no shape in the model; give it one (--shape {}=…)", who, info.name()));
    input.dims.resize(option->second.size());
  }
  for (const onnx::TensorShape::Dimension& d : type.shape().dim()) {
    Dim dim;
    if (d.has_dim_value() && d.dim_value() < -1)
      return invalid(fmt::format("{}: dimension {} is {}", who, input.dims.size(), d.dim_value()));
    if (d.has_dim_value() && d.dim_value() >= 0) dim.number = d.dim_value();
    if (d.has_dim_param() && !d.dim_param().empty()) dim.name = params_.at(d.dim_param());
    input.dims.push_back(dim);
  }
  for (size_t i = 0; i < input.dims.size(); ++i)
    if (!input.dims[i].number && input.dims[i].name.empty())
      input.dims[i].name = fresh(fmt::format("{}_d{}", identifier(info.name()), i));
  if (option != options_.shapes.end()) INGOT_TRY(apply_texts(input, option->second));
  return input;
}

Status InputShapes::apply_texts(Input& input, const std::vector<std::string>& texts) {
  if (texts.size() != input.dims.size())
    return invalid(fmt::format("the shape given for input {} has {} dimensions, the model's has {}",
                               quote_name(input.name), texts.size(), input.dims.size()));
  for (size_t i = 0; i < texts.size(); ++i) INGOT_TRY(apply_text(input, i, texts[i], input.dims[i]));
  return {};
}

Status InputShapes::apply_text(const Input& input, size_t position, const std::string& text, Dim& dim) {
  const auto parsed = parse_dim(text);
  const std::string where = fmt::format("dimension {} of input {}", position, quote_name(input.name));
  if (!parsed)
    return invalid(fmt::format("{} is given as {}; it may be a number, low..high, a name, or name=low..high", where,
                               quote_name(text)));
  if (dim.number) {
    const bool agrees = parsed->range && parsed->range->low == *dim.number && parsed->range->high == *dim.number;
    if (agrees || (parsed->name.empty() && !parsed->range)) return {};
    return invalid(
        fmt::format("{} is given as {}, but the model fixes it at {}", where, quote_name(text), *dim.number));
  }
  if (!parsed->name.empty() && parsed->name != dim.name) {
    const auto [it, fresh] = renamed_.emplace(dim.name, parsed->name);
    if (!fresh && it->second != parsed->name)
      return invalid(
          fmt::format("{} is named {}, but the same dimension is named {} elsewhere", where, parsed->name, it->second));
    taken_.insert(parsed->name);
  }
  if (parsed->range) INGOT_TRY(narrow(dim.name, *parsed->range));
  return {};
}

Status InputShapes::narrow(const std::string& name, SymbolRange range) {
  const auto [it, fresh] = ranges_.emplace(name, range);
  if (fresh) return {};
  const SymbolRange both{std::max(it->second.low, range.low), std::min(it->second.high, range.high)};
  if (both.low > both.high)
    return invalid(fmt::format("dimension {} is given as {}..{} and as {}..{}", name, it->second.low, it->second.high,
                               range.low, range.high));
  it->second = both;
  return {};
}

/// Follows renames, then the ranges of the options, by whichever name they use.
Status InputShapes::apply_ranges() {
  std::map<std::string, SymbolRange> given;
  given.swap(ranges_);
  for (const auto& [name, range] : given) {
    auto it = renamed_.find(name);
    INGOT_TRY(narrow(it != renamed_.end() ? it->second : name, range));
  }
  for (const auto& [name, range] : options_.ranges) {
    if (range.low < 0 || range.high < range.low || range.high > kNoLimit)
      return invalid(fmt::format("the range {}..{} of dimension {} is empty or negative", range.low, range.high, name));
    auto param = params_.find(name);
    std::string ours = param != params_.end() ? param->second : name;
    if (!taken_.contains(ours))
      return invalid(
          fmt::format("a range is given for {}, but no input has a dimension of that name", quote_name(name)));
    if (auto it = renamed_.find(ours); it != renamed_.end()) ours = it->second;
    INGOT_TRY(narrow(ours, range));
  }
  return {};
}

Expr InputShapes::symbol(const std::string& name) {
  auto renamed = renamed_.find(name);
  const std::string& ours = renamed != renamed_.end() ? renamed->second : name;
  auto it = ranges_.find(ours);
  const SymbolRange range = it != ranges_.end() ? it->second : SymbolRange{};
  if (range.low == range.high) return range.low;
  const Expr made = Expr::symbol(ours, range.low, range.high);
  const bool known = std::any_of(symbols_.begin(), symbols_.end(), [&](const Expr& s) { return to_string(s) == ours; });
  if (!known) symbols_.push_back(made);
  return made;
}

Result<TensorType> InputShapes::type_of(const Input& input) {
  TensorType type{input.dtype, {}};
  std::vector<int64_t> numbers;
  for (const Dim& d : input.dims) {
    type.shape.push_back(d.number ? Expr(*d.number) : symbol(d.name));
    numbers.push_back(std::max<int64_t>(type.shape.back().as_int().value_or(1), 1));
  }
  auto count = checked_count(numbers, size_of(input.dtype));
  if (!count) return std::move(count.error().add(fmt::format("of input {}", quote_name(input.name))));
  return type;
}

Result<std::vector<TensorType>> InputShapes::resolve(const std::vector<const onnx::ValueInfo*>& infos) {
  for (const onnx::ValueInfo* info : infos)
    for (const onnx::TensorShape::Dimension& d : info->type().tensor_type().shape().dim())
      if (const std::string& param = d.dim_param(); !param.empty() && !params_.contains(param))
        params_[param] = fresh(dimension_name(param));
  for (const auto& [name, texts] : options_.shapes) {
    const bool known =
        std::any_of(infos.begin(), infos.end(), [&](const onnx::ValueInfo* i) { return i->name() == name; });
    if (known) continue;
    std::string list;
    for (const onnx::ValueInfo* i : infos) list += (list.empty() ? "" : ", ") + quote_name(i->name());
    return invalid(fmt::format("a shape is given for {}, but the model's inputs are {}", quote_name(name),
                               list.empty() ? "none" : list));
  }
  std::vector<Input> inputs;
  for (const onnx::ValueInfo* info : infos) inputs.push_back(INGOT_TRY(read(*info)));
  INGOT_TRY(apply_ranges());
  std::vector<TensorType> types;
  for (const Input& input : inputs) types.push_back(INGOT_TRY(type_of(input)));
  return types;
}

}  // namespace ingot
