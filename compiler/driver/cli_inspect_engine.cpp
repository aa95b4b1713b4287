// inspect of an .ingot file.
#include <fmt/format.h>

#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "compiler/driver/cli.h"
#include "runtime/cpu/cpu_device.h"
#include "runtime/cpu/cpu_features.h"
#include "runtime/cuda/cuda_device.h"
#include "runtime/engine_file.h"

namespace ingot::cli {
namespace {

struct Place {
  std::string device, runs, why_not;  // one of the last two
};

/// The compute capabilities that are sold, and chips that have them.
constexpr struct {
  int cc;
  const char* chips;
} kGpus[] = {{75, "T4, RTX 20"},    {80, "A100"},       {86, "A10, RTX 30"}, {87, "Jetson Orin"}, {89, "L4, L40, RTX 40"},
             {90, "H100, H200"},    {100, "B200"},      {103, "B300"},       {110, "Jetson Thor"}, {120, "RTX 50"},
             {121, "DGX Spark"}};

/// The target that a GPU takes, over all programs.
Place place_on_gpu(const runtime::EngineFile& file, int cc, const char* chips) {
  Place place{fmt::format("compute capability {}.{} ({})", cc / 10, cc % 10, chips), "", ""};
  int best = 0;
  bool any = false, only_older = true;
  std::string specific;
  for (const auto& p : file.programs)
    for (const std::string& t : runtime::targets_of(*p)) {
      const int preference = runtime::cuda_preference(t, cc);
      if (preference > best) best = preference, place.runs = t;
      if (t.rfind("sm_", 0) != 0 && t.rfind("ptx_", 0) != 0) continue;
      any = true;
      const int of = std::atoi(t.c_str() + t.find('_') + 1);
      if (of <= cc) only_older = false;
      if (t.back() == 'a' && of != cc) specific += (specific.empty() ? "" : ", ") + t;
    }
  if (best) return place;
  if (!any) place.why_not = "the file has no GPU program";
  else if (only_older) place.why_not = "all its GPU programs are for newer chips";
  else place.why_not = "it has no binary of this generation and no PTX that is old enough" +
                       (specific.empty() ? "" : "; " + specific + " code runs on that chip only");
  return place;
}

Place place_on_cpu(const runtime::EngineFile& file) {
  const runtime::CpuDevice device(nullptr, 1);
  Place place{fmt::format("this CPU (x86-64-v{})", runtime::cpu_level()), "", ""};
  auto program = runtime::program_for(file, device);
  if (program) place.runs = program.value()->target + ", for callers that trust the file";
  else {
    place.why_not = "the file has no CPU program";
    for (const std::string& line : program.error().context)
      if (line.find("another kind") == std::string::npos) place.why_not = line;
  }
  return place;
}

std::vector<Place> places_of(const runtime::EngineFile& file) {
  std::vector<Place> places;
  for (const auto& gpu : kGpus) places.push_back(place_on_gpu(file, gpu.cc, gpu.chips));
  places.push_back(place_on_cpu(file));
  return places;
}

std::string dims_of(const runtime::Program& p, const runtime::Binding& b) {
  std::string text;
  for (size_t d = 0; d < b.dims.size(); ++d) {
    const int32_t symbol = d < b.symbols.size() ? b.symbols[d] : -1;
    const runtime::ShapeLine& line = p.shapes.lines[static_cast<size_t>(b.dims[d])];
    text += d ? "," : "";
    if (symbol >= 0) text += p.symbols[static_cast<size_t>(symbol)].name;
    else if (line.op == runtime::ShapeOp::Constant) text += std::to_string(line.immediate);
    else if (line.op == runtime::ShapeOp::Symbol) text += p.symbols[static_cast<size_t>(line.a)].name;
    else text += "?";
  }
  return fmt::format("{}[{}]", name_of(b.type), text);
}

uint64_t code_bytes(const runtime::Program& p) {
  uint64_t total = 0;
  for (const auto& k : p.kernels)
    for (const auto& b : k.binaries) total += b.code.size();
  return total;
}

/// Bytes of weights in the file; those that programs share count once.
uint64_t weight_bytes(const runtime::EngineFile& file) {
  std::set<const void*> seen;
  uint64_t total = 0;
  const auto add = [&](const runtime::Program& p) {
    for (const auto& c : p.constants)
      if (seen.insert(c.data->data()).second) total += c.data->bytes();
  };
  for (const auto& p : file.programs) {
    add(*p);
    for (const auto& part : p->parts) add(*part);
  }
  return total;
}

nlohmann::json to_json(const std::string& path, const runtime::EngineFile& file) {
  nlohmann::json j{{"file", path}, {"weight_bytes", weight_bytes(file)}, {"notes", nlohmann::json::parse(file.notes, nullptr, false)}};
  for (const auto& p : file.programs) {
    nlohmann::json program{{"target", p->target}, {"launches", steps_of(*p)}, {"code_bytes", code_bytes(*p)}, {"streams", lanes_of(*p)}};
    for (const auto& k : p->kernels) program["kernels"].push_back({{"name", k.name}, {"summary", k.summary}, {"nodes", k.nodes}});
    j["programs"].push_back(program);
  }
  for (const Place& p : places_of(file))
    j["devices"].push_back({{"device", p.device}, {"runs", !p.runs.empty()}, {"target", p.runs}, {"why_not", p.why_not}});
  return j;
}

/// The plans that were measured when the file was made.
void print_measurements(const nlohmann::json& notes) {
  if (!notes.is_object()) return;
  for (const auto& program : notes.value("programs", nlohmann::json::array())) {
    if (!program.is_object() || !program.contains("tuned")) continue;
    fmt::print("  plans by measurement, for {}:\n", program.value("target", "?"));
    std::vector<TunedKernel> tuned;
    for (const auto& t : program["tuned"])
      tuned.push_back({t.value("kernel", "?"), t.value("at", ""), t.value("plan", ""), t.value("default_plan", ""),
                       t.value("us", 0.0), t.value("default_us", 0.0), t.value("measured", size_t{0}), false,
                       t.value("dropped", std::vector<std::string>{})});
    print_tuning(tuned);
  }
}

}  // namespace

Outcome inspect_engine(const std::string& path, bool json) {
  runtime::LoadOptions load;
  load.trust_host_code = true;  // only looked at
  const runtime::EngineFile file = INGOT_TRY(runtime::load_engine(path, load));
  if (json) {
    fmt::print("{}\n", to_json(path, file).dump(1));
    return 0;
  }
  const auto notes = nlohmann::json::parse(file.notes, nullptr, false);
  const runtime::Program& first = *file.programs[0];
  uint64_t weights = 0;
  for (const auto& c : first.constants) weights += c.data->bytes();
  fmt::print("{}: {}, weights of a program {}, {} program{}\n", path, human_bytes(static_cast<double>(std::filesystem::file_size(path))),
             human_bytes(static_cast<double>(weights)), file.programs.size(), file.programs.size() == 1 ? "" : "s");
  if (notes.is_object()) fmt::print("  from {} with {} operators\n", notes.value("model", "?"), notes.value("nodes", 0));
  for (const auto& s : first.symbols)
    fmt::print("  {} from {} to {}\n", s.name, s.low, s.high == INT64_MAX ? "any size" : std::to_string(s.high));
  for (const auto& b : first.inputs) fmt::print("  input  {} {}\n", b.name, dims_of(first, b));
  for (const auto& b : first.outputs) fmt::print("  output {} {}\n", b.name, dims_of(first, b));
  for (const auto& p : file.programs) {
    fmt::print("  program for {}: {} kernels in {} launches on {} stream{}, code {}\n", p->target, p->kernels.size(), steps_of(*p), lanes_of(*p),
               lanes_of(*p) == 1 ? "" : "s", human_bytes(static_cast<double>(code_bytes(*p))));
    for (const auto& in : p->instructions)
      if (in.kernel >= 0) fmt::print("    {}\n", p->kernels[static_cast<size_t>(in.kernel)].name);
  }
  print_measurements(notes);
  for (const Place& p : places_of(file))
    fmt::print("  {} {}: {}\n", p.runs.empty() ? "does not run on" : "runs on", p.device, p.runs.empty() ? p.why_not : p.runs);
  return 0;
}

}  // namespace ingot::cli
