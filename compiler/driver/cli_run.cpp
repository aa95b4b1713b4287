// run.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "compiler/driver/cli.h"
#include "compiler/driver/cli_profile.h"
#include "compiler/driver/specialise.h"

namespace ingot::cli {
namespace {

void print_summary(const std::string& name, const Tensor& t) {
  double low = INFINITY, high = -INFINITY, sum = 0;
  int64_t nans = 0;
  for (int64_t i = 0; i < t.count(); ++i) {
    const double v = t.float_at(i);
    if (std::isnan(v)) { ++nans; continue; }
    low = std::min(low, v), high = std::max(high, v), sum += v;
  }
  fmt::print("  {:<28} {:<22} min {:<12.6g} max {:<12.6g} mean {:<12.6g}{}\n", name, describe(t.type(), t.dims()), low, high,
             t.count() ? sum / static_cast<double>(t.count()) : 0, nans ? fmt::format(" NaN {}", nans) : "");
}

/// Argmax of each row of the first output beside the label of that line.
Status print_labels(const Tensor& t, const std::string& file) {
  std::ifstream in(file);
  if (!in) return make_error(ErrorKind::NotFound, fmt::format("cannot read {}", file));
  const int64_t rows = t.dims().empty() ? 1 : t.dims()[0], columns = rows ? t.count() / rows : 0;
  int64_t right = 0;
  std::string label;
  for (int64_t r = 0; r < rows && std::getline(in, label); ++r) {
    int64_t best = 0;
    for (int64_t c = 1; c < columns; ++c)
      if (t.float_at(r * columns + c) > t.float_at(r * columns + best)) best = c;
    const bool ok = std::to_string(best) == label;
    right += ok;
    fmt::print("  image {:>3}: predicted {}, true {}{}\n", r, best, label, ok ? "" : "   <- wrong");
  }
  fmt::print("  {} of {} right\n", right, rows);
  return {};
}

std::string file_name(std::string s) {
  for (char& c : s)
    if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
  return s + ".npy";
}

struct RunArgs {
  CommonOptions common;
  std::string model, device, labels, output_dir;
  std::vector<std::string> inputs;
  bool profile = false;
  int64_t batch = 1;
  uint64_t seed = 1;
};

/// The given tensors in the order of the model's inputs. Error: one is missing or unknown.
Result<std::vector<NamedTensor>> given_inputs(const RunArgs& a) {
  std::vector<runtime::Binding> bindings;
  for (const std::string& name : required_inputs(INGOT_TRY(read_model(a.model)))) bindings.emplace_back().name = name;
  const auto tensors = INGOT_TRY(read_inputs(bindings, {}, a.inputs, false, a.batch, a.seed));
  std::vector<NamedTensor> named;
  for (size_t i = 0; i < tensors.size(); ++i) named.push_back({bindings[i].name, tensors[i]});
  return named;
}
/// The model and its inputs; where operators need the values of some, a model made for those values.
Result<SpecialisedModel> load_to_run(const RunArgs& a) {
  const CompileOptions options = INGOT_TRY(a.common.to_compile());
  auto general = Model::load(a.model, a.device, options);
  if (!general && general.error().kind == ErrorKind::Unsupported && !a.inputs.empty() && a.model.ends_with(".onnx")) {
    SpecialisedModel s = INGOT_TRY(load_for_inputs(a.model, a.device, options, INGOT_TRY(given_inputs(a))));
    for (const std::string& name : s.specialised_on) fmt::print("compiled for the value of \"{}\"\n", name);
    return s;
  }
  SpecialisedModel s;
  s.model = INGOT_TRY(std::move(general));
  s.inputs = INGOT_TRY(read_inputs(s.model.inputs(), s.model.program(), a.inputs, a.inputs.empty(), a.batch, a.seed));
  return s;
}

Outcome run_run(const RunArgs& a) {
  const auto [m, inputs, constants] = INGOT_TRY(load_to_run(a));
  if (a.inputs.empty()) fmt::print("no --input given: seeded random inputs\n");
  const auto outputs = INGOT_TRY(m.run_ordered(inputs));
  fmt::print("{} on {}: {} kernels\n", a.model, m.device_name(), steps_of(m.program()));
  for (size_t i = 0; i < outputs.size(); ++i) print_summary(m.outputs()[i].name, outputs[i]);
  if (!a.output_dir.empty()) {
    std::error_code ec;
    std::filesystem::create_directories(a.output_dir, ec);
    for (size_t i = 0; i < outputs.size(); ++i) INGOT_TRY(write_npy(a.output_dir + "/" + file_name(m.outputs()[i].name), outputs[i]));
  }
  if (!a.labels.empty()) INGOT_TRY(print_labels(outputs[0], a.labels));
  if (a.profile) {
    INGOT_TRY(m.profile(inputs));  // the first run warms caches
    print_profile(INGOT_TRY(m.profile(inputs)), m.traits());
  }
  return 0;
}

}  // namespace

std::function<Outcome()> add_run(CLI::App& app) {
  auto a = std::make_shared<RunArgs>();
  app.add_option("model", a->model, "MODEL.onnx or FILE.ingot")->required();
  app.add_option("--device", a->device, "cpu, cuda:N, interpreter; default: a GPU if there is one");
  app.add_option("--input", a->inputs, "NAME=FILE (.npy, .npz, .pb), or FILE in the order of the model's inputs");
  app.add_option("--output-dir", a->output_dir, "writes each output as .npy");
  app.add_option("--labels", a->labels, "one label a line: prints the argmax of each row beside it");
  app.add_option("--batch", a->batch, "of random inputs");
  app.add_option("--seed", a->seed, "of random inputs");
  app.add_flag("--profile", a->profile, "time of each kernel");
  a->common.add(app);
  return [a] { return run_run(*a); };
}

}  // namespace ingot::cli
