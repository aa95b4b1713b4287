// test, check.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "compiler/driver/cli.h"

namespace ingot::cli {
namespace {

namespace fs = std::filesystem;

struct TestArgs {
  CommonOptions common;
  std::vector<std::string> folders;
  std::string device = "cpu", manifest;
  double rtol = 1e-3, atol = 1e-5;
  bool smallest = false, json = false, list = false;
};

struct Comparison {
  bool equal = true;
  double worst = 0;  // largest |difference| / (atol + rtol*|expected|)
  std::string text;
};

Comparison compare(const Tensor& got, const Tensor& want, double rtol, double atol) {
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
      c.worst = std::max(c.worst, std::fabs(g - w) / (atol + rtol * std::fabs(w)));
    }
    if (c.worst > 1 && c.equal) {
      c.equal = false;
      c.text = fmt::format("element {} is {}, expected {}", i, g, w);
    }
  }
  return c;
}

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
/// Models at or below the given folders.
std::vector<fs::path> find_models(const std::vector<std::string>& roots) {
  std::vector<fs::path> found;
  for (const std::string& r : roots) {
    if (!fs::is_directory(r)) continue;
    for (auto it = fs::recursive_directory_iterator(r); it != fs::recursive_directory_iterator(); ++it)
      if (it->path().extension() == ".onnx") found.push_back(it->path());
  }
  std::sort(found.begin(), found.end());
  return found;
}

/// Tolerances of index.tsv beside the model folders: model, set, case, rtol, atol.
std::pair<double, double> tolerances(const TestArgs& a, const fs::path& model, const std::string& set) {
  std::ifstream in(model.parent_path() / "index.tsv");
  for (std::string line; std::getline(in, line);) {
    std::stringstream s(line);
    std::string name, which, label, rtol, atol;
    std::getline(s, name, '\t'), std::getline(s, which, '\t'), std::getline(s, label, '\t'), std::getline(s, rtol, '\t'), std::getline(s, atol, '\t');
    if (name == model.filename() && which == set) return {std::atof(rtol.c_str()), std::atof(atol.c_str())};
  }
  return {a.rtol, a.atol};
}

Result<std::string> run_set(const TestArgs& a, const Model& m, const fs::path& model, const fs::path& set) {
  std::vector<std::string> files;
  for (const fs::path& f : numbered(set, "input")) files.push_back(f);
  std::vector<Tensor> inputs;
  for (const std::string& f : files) inputs.push_back(INGOT_TRY(read_tensor(f)).tensor);
  const auto outputs = INGOT_TRY(m.run_ordered(inputs));
  const auto [rtol, atol] = tolerances(a, model, set.filename());
  const auto expected = numbered(set, "output");
  double worst = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    if (i >= outputs.size()) return invalid("fewer outputs than expected");
    const Comparison c = compare(outputs[i], INGOT_TRY(read_tensor(expected[i])).tensor, rtol, atol);
    if (!c.equal) return invalid(fmt::format("output {} \"{}\" {}", i, m.outputs()[i].name, c.text));
    worst = std::max(worst, c.worst);
  }
  return fmt::format("{:.0f}% of the tolerance", 100 * worst);
}

Outcome run_test(const TestArgs& a) {
  const auto models = find_models(a.folders);
  if (models.empty()) return make_error(ErrorKind::NotFound, "no .onnx file in the folders given");
  int passed = 0, failed = 0;
  nlohmann::json failures = nlohmann::json::array();
  const CompileOptions options = INGOT_TRY(a.common.to_compile());
  for (const fs::path& path : models) {
    const fs::path folder = path.parent_path();
    auto m = Model::load(path.string(), a.device, options);
    for (const fs::path& set : data_sets(folder, a.smallest)) {
      const std::string name = folder.filename().string() + "/" + set.filename().string();
      Result<std::string> r = m ? run_set(a, *m, folder, set) : Result<std::string>(m.error());
      if (r) {
        ++passed;
        if (a.list) fmt::print("ok    {}: {}\n", name, *r);
        continue;
      }
      ++failed;
      failures.push_back({{"case", name}, {"error", r.error().message}});
      if (!a.json) fmt::print("FAIL  {}: {}\n", name, r.error().to_string());
    }
  }
  if (a.json) fmt::print("{}\n", nlohmann::json({{"passed", passed}, {"failed", failed}, {"failures", failures}}).dump(1));
  else fmt::print("{} passed, {} failed on {}\n", passed, failed, a.device);
  return failed ? 1 : 0;
}

struct CheckArgs {
  CommonOptions common;
  std::string model, device;
  std::vector<std::string> inputs;
  std::vector<int64_t> batches{1, 3};
  double rtol = 1e-3, atol = 1e-4;
};

/// The first refusal-free way to blame a fusion: nodes whose unfused value differs would need every intermediate; the
/// verdict names the first output that differs.
Outcome run_check(const CheckArgs& a) {
  CompileOptions o = INGOT_TRY(a.common.to_compile());
  const Model fused = INGOT_TRY(Model::load(a.model, a.device, o));
  CompileOptions apart = o;
  apart.fuse = false;
  const Model reference = INGOT_TRY(Model::load(a.model, "interpreter", apart));
  int bad = 0;
  for (int64_t batch : a.batches) {
    const auto inputs = INGOT_TRY(read_inputs(fused.inputs(), fused.program(), a.inputs, true, batch, 7));
    const auto got = INGOT_TRY(fused.run_ordered(inputs)), want = INGOT_TRY(reference.run_ordered(inputs));
    for (size_t i = 0; i < got.size(); ++i) {
      const Comparison c = compare(got[i], want[i], a.rtol, a.atol);
      bad += !c.equal;
      fmt::print("batch {:<4} {:<28} {}\n", batch, fused.outputs()[i].name, c.equal ? fmt::format("equal, {:.1f}% of the tolerance", 100 * c.worst) : c.text);
    }
  }
  fmt::print("{}\n", bad ? "the fused program differs from the unfused one" : "the fused program equals the unfused one");
  return bad ? 1 : 0;
}

}  // namespace

std::function<Outcome()> add_test(CLI::App& app) {
  auto a = std::make_shared<TestArgs>();
  app.add_option("folders", a->folders, "folders with model.onnx and test_data_set_N, at any depth")->required();
  app.add_option("--device", a->device, "cpu, cuda:N, interpreter");
  app.add_option("--rtol", a->rtol, "where no index.tsv says otherwise");
  app.add_option("--atol", a->atol, "");
  app.add_flag("--smallest", a->smallest, "only the smallest data set of each model");
  app.add_flag("--list", a->list, "a line for each case that passes, too");
  app.add_flag("--json", a->json, "");
  a->common.add(app);
  return [a] { return run_test(*a); };
}

std::function<Outcome()> add_check(CLI::App& app) {
  auto a = std::make_shared<CheckArgs>();
  app.add_option("model", a->model, "MODEL.onnx")->required();
  app.add_option("--device", a->device, "cpu, cuda:N; default: a GPU if there is one");
  app.add_option("--input", a->inputs, "NAME=FILE; missing inputs are seeded random");
  app.add_option("--batch", a->batches, "batch sizes")->delimiter(',');
  app.add_option("--rtol", a->rtol, "");
  app.add_option("--atol", a->atol, "");
  a->common.add(app);
  return [a] { return run_check(*a); };
}

}  // namespace ingot::cli
