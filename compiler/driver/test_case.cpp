#include "compiler/driver/test_case.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <sstream>

#include "compiler/driver/specialise.h"

namespace ingot {
namespace {

namespace fs = std::filesystem;

std::vector<fs::path> numbered(const fs::path& folder, const std::string& prefix) {
  std::vector<fs::path> files;
  for (size_t i = 0;; ++i) {
    const fs::path f = folder / fmt::format("{}_{}.pb", prefix, i);
    if (!fs::exists(f)) return files;
    files.push_back(f);
  }
}

std::vector<fs::path> data_sets(const fs::path& folder, bool smallest) {
  std::vector<fs::path> sets;
  for (const auto& e : fs::directory_iterator(folder))
    if (e.is_directory() && e.path().filename().string().rfind("test_data_set_", 0) == 0) sets.push_back(e.path());
  std::sort(sets.begin(), sets.end());
  auto size = [](const fs::path& p) {
    uintmax_t s = 0;
    for (const auto& e : fs::directory_iterator(p)) s += e.file_size();
    return s;
  };
  if (smallest && sets.size() > 1) {
    std::stable_sort(sets.begin(), sets.end(), [&](const fs::path& a, const fs::path& b) { return size(a) < size(b); });
    sets.resize(1);
  }
  return sets;
}

/// Tolerances of index.tsv beside the model folders: model, set, case, rtol, atol.
Tolerance tolerance_of(const CaseOptions& o, const fs::path& model, const std::string& set) {
  std::ifstream in(model.parent_path() / "index.tsv");
  for (std::string line; std::getline(in, line);) {
    std::stringstream s(line);
    std::vector<std::string> cells(5);
    for (std::string& c : cells) std::getline(s, c, '\t');
    if (cells[0] == model.filename() && cells[1] == set) return {std::atof(cells[3].c_str()), std::atof(cells[4].c_str())};
  }
  return o.tolerance;
}

Result<std::vector<NamedTensor>> read_all(const std::vector<fs::path>& files) {
  std::vector<NamedTensor> tensors;
  for (const fs::path& f : files) {
    auto t = read_tensor(f);
    if (!t) return std::move(t.error().add("reading " + f.filename().string()));
    tensors.push_back(std::move(*t));
  }
  return tensors;
}

Result<double> compare_all(const Model& m, const std::vector<Tensor>& outputs, const fs::path& set, Tolerance tolerance) {
  const auto expected = INGOT_TRY(read_all(numbered(set, "output")));
  double worst = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    if (i >= outputs.size()) return invalid("fewer outputs than expected");
    const Comparison c = compare(outputs[i], expected[i].tensor, tolerance);
    if (!c.equal) return invalid(fmt::format("output {} \"{}\" {}", i, m.outputs()[i].name, c.text));
    worst = std::max(worst, c.worst);
  }
  return worst;
}

/// Runs a data set on the model, or, when that did not compile, on one made for the set's inputs.
Result<double> run_set(const CaseOptions& o, const Result<Model>& general, const fs::path& path, const fs::path& set,
                       std::string& specialised) {
  const auto given = INGOT_TRY(read_all(numbered(set, "input")));
  const Tolerance tolerance = tolerance_of(o, path.parent_path(), set.filename());
  if (general && given.size() <= general.value().inputs().size()) {
    std::vector<Tensor> inputs;
    for (const NamedTensor& t : given) inputs.push_back(t.tensor);
    return compare_all(general.value(), INGOT_TRY(general.value().run_ordered(inputs)), set, tolerance);
  }
  if (!general && general.error().kind != ErrorKind::Unsupported) return general.error();
  const SpecialisedModel m = INGOT_TRY(load_for_inputs(path, o.device, o.compile, given));
  for (const std::string& name : m.specialised_on) specialised += (specialised.empty() ? "" : ", ") + name;
  return compare_all(m.model, INGOT_TRY(m.model.run_ordered(m.inputs)), set, tolerance);
}

}  // namespace

Comparison compare(const Tensor& got, const Tensor& want, Tolerance tolerance) {
  Comparison c;
  if (got.type() != want.type() || got.dims() != want.dims()) {
    c.equal = false;
    c.text = fmt::format("is {}, expected {}", describe(got.type(), got.dims()), describe(want.type(), want.dims()));
    return c;
  }
  for (int64_t i = 0; i < got.count(); ++i) {
    const double g = got.float_at(i), w = want.float_at(i);
    if (!is_float(want.type())) {
      if (got.int_at(i) != want.int_at(i)) c.worst = INFINITY;
    } else if (std::isnan(w) || std::isnan(g)) {
      if (std::isnan(w) != std::isnan(g)) c.worst = INFINITY;
    } else if (std::isinf(w) || std::isinf(g)) {
      if (w != g) c.worst = INFINITY;
    } else {
      c.worst = std::max(c.worst, std::fabs(g - w) / (tolerance.atol + tolerance.rtol * std::fabs(w)));
    }
    if (c.worst > 1 && c.equal) {
      c.equal = false;
      c.text = fmt::format("element {} is {}, expected {}", i, g, w);
    }
  }
  return c;
}

std::vector<fs::path> find_models(const std::vector<std::string>& roots) {
  std::vector<fs::path> found;
  for (const std::string& r : roots) {
    if (fs::is_regular_file(r)) found.emplace_back(r);
    if (!fs::is_directory(r)) continue;
    for (auto it = fs::recursive_directory_iterator(r); it != fs::recursive_directory_iterator(); ++it)
      if (it->path().extension() == ".onnx") found.push_back(it->path());
  }
  std::sort(found.begin(), found.end());
  return found;
}

std::vector<CaseResult> run_case(const CaseOptions& o, const fs::path& path) {
  std::vector<CaseResult> results;
  const fs::path folder = path.parent_path();
  const auto general = Model::load(path, o.device, o.compile);
  for (const fs::path& set : data_sets(folder, o.smallest)) {
    CaseResult r{folder.filename().string() + "/" + set.filename().string(), "", 0.0};
    r.share = run_set(o, general, path, set, r.specialised);
    results.push_back(std::move(r));
  }
  return results;
}

}  // namespace ingot
