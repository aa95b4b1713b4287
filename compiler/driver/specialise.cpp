#include "compiler/driver/specialise.h"

#include <fmt/format.h>

#include <algorithm>

namespace ingot {
namespace {

constexpr int kMostRounds = 8;         // a branch that one value opens may need another
constexpr int64_t kMostIntegers = 1024;
constexpr int64_t kMostFloats = 16;    // scales and bounds of ranges; more is data

bool may_be_constant(const Tensor& t) { return t.count() <= (is_float(t.type()) ? kMostFloats : kMostIntegers); }

}  // namespace

Result<SpecialisedModel> load_for_inputs(const std::string& path, const std::string& device,
                                         const CompileOptions& options, const std::vector<NamedTensor>& given) {
  std::vector<std::string> names = required_inputs(INGOT_TRY(read_model(path)));
  CompileOptions o = options;
  std::vector<std::string> needed;
  o.needs_values = [&](const std::vector<std::string>& inputs) { needed = inputs; };
  SpecialisedModel result;
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
    result.model = INGOT_TRY(std::move(model));
    break;
  }
  for (size_t i = 0; i < given.size(); ++i)
    if (i >= names.size() || !o.constants.count(names[i])) result.inputs.push_back(given[i].tensor);
  return result;
}

}  // namespace ingot
