#include "compiler/driver/specialise.h"

#include <fmt/format.h>

#include <algorithm>

namespace ingot {
namespace {

constexpr int kMostRounds = 8;         // a branch that one value opens may need another
constexpr int64_t kMostIntegers = 1024;
constexpr int64_t kMostFloats = 16;    // scales and bounds of ranges; more is data

bool may_be_constant(const Tensor& t) { return t.count() <= (is_float(t.type()) ? kMostFloats : kMostIntegers); }

std::vector<std::string> dim_texts(const Tensor& t) {
  std::vector<std::string> texts;
  for (int64_t d : t.dims()) texts.push_back(std::to_string(d));
  return texts;
}

}  // namespace

Result<SpecialisedModel> load_for_inputs(const std::string& path, const std::string& device,
                                         const CompileOptions& options, const std::vector<NamedTensor>& given) {
  const OnnxModel proto = INGOT_TRY(read_model(path));
  const std::vector<std::string> required = required_inputs(proto);
  const std::vector<std::string> names = given.size() > required.size() ? listed_inputs(proto) : required;
  CompileOptions o = options;
  for (size_t i = 0; i < names.size() && i < given.size(); ++i)  // an initialiser's new value
    if (std::find(required.begin(), required.end(), names[i]) == required.end())
      o.constants[names[i]] = std::make_shared<const Tensor>(given[i].tensor);
  std::vector<std::string> needed;
  o.needs_values = [&](const std::vector<std::string>& inputs) { needed = inputs; };
  SpecialisedModel result;
  bool fixed_shapes = false;
  for (int round = 0;; ++round) {
    needed.clear();
    auto model = Model::load(path, device, o);
    bool grown = false;
    for (const std::string& name : needed) {
      const auto at = static_cast<size_t>(std::find(names.begin(), names.end(), name) - names.begin());
      if (at >= given.size() || o.constants.count(name) || !may_be_constant(given[at].tensor)) continue;
      o.constants[name] = std::make_shared<const Tensor>(given[at].tensor);
      result.specialised_on.push_back(name);
      grown = true;
    }
    if (!model && grown && round < kMostRounds) continue;
    // What is left may hang on a dynamic dimension.
    if (!model && model.error().kind == ErrorKind::Unsupported && !fixed_shapes) {
      fixed_shapes = true;
      for (size_t i = 0; i < names.size() && i < given.size(); ++i)
        if (!o.constants.count(names[i])) o.shapes[names[i]] = dim_texts(given[i].tensor);
      result.specialised_on.push_back("the shapes");
      continue;
    }
    result.model = INGOT_TRY(std::move(model));
    break;
  }
  for (size_t i = 0; i < given.size(); ++i)
    if (i >= names.size() || !o.constants.count(names[i])) result.inputs.push_back(given[i].tensor);
  return result;
}

}  // namespace ingot
