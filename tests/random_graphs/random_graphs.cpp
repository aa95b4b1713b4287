// random_graphs [--count N] [--seed S] [--device D]… : random graphs, each compiled in several ways, against what its operators
// mean (expected.h). A failing graph is made small and written to --output-dir with the command that runs it again.
// random_graphs FILE.ir… : runs such files, in every way.
#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "codegen/cuda/cuda_backend.h"
#include "compiler/driver/devices.h"
#include "tests/emulation/emulator_device.h"
#include "tests/random_graphs/generator.h"
#include "tests/random_graphs/isolate.h"
#include "tests/random_graphs/shrink.h"

namespace {

using namespace ingot;
using namespace ingot::testing;
using Clock = std::chrono::steady_clock;

struct Options {
  uint64_t count = 150, seed = 1;
  std::vector<std::string> devices{"cpu"}, files;
  std::string output_dir = "random_graphs_failures", only;
  double seconds = 120;  // for one graph
  double most_seconds = 0;  // for the run; 0: no limit
  bool cuda_text = false, nvrtc = false, print = false, no_shrink = false, verbose = false;
  int most_failures = 20;
};

std::vector<std::string> devices_of(const Options& o) {
  std::vector<std::string> list{"interpreter", "text"};
  list.insert(list.end(), o.devices.begin(), o.devices.end());
  if (o.cuda_text) list.emplace_back("emulator");
  if (o.nvrtc) list.emplace_back("nvrtc");
  return list;
}
std::vector<Variant> chosen(std::vector<Variant> variants, const std::string& only) {
  if (!only.empty())
    std::erase_if(variants, [&](const Variant& v) { return v.name().find(only) == std::string::npos; });
  return variants;
}

struct Totals {
  uint64_t graphs = 0, failures = 0;
  int64_t runs = 0, elements = 0, unknown = 0, loose = 0, rescued = 0;
  void add(const CheckResult& r) {
    ++graphs;
    runs += r.runs, elements += r.elements, unknown += r.unknown, loose += r.loose, rescued += r.rescued;
  }
};

/// Makes the case small, writes it and says how to run it again.
void report(const Options& o, const GraphCase& c, const CheckResult& r, const std::vector<Variant>& variants) {
  fmt::print("FAIL seed {}: {} on {}: {}\n", c.seed, name_of(r.fault), r.variant, r.text);
  std::fflush(stdout);
  std::vector<Variant> same = variants;
  if (!r.variant.empty()) std::erase_if(same, [&](const Variant& v) { return v.name() != r.variant; });
  Shrunk s{c, r, 0};
  if (!o.no_shrink && r.fault != Fault::BadCase)
    s = shrink(c, r, [&](const GraphCase& smaller) {
      return check_isolated(smaller, same, r.fault == Fault::Hang ? 5 : o.seconds);
    });
  std::filesystem::create_directories(o.output_dir);
  const std::string path = fmt::format("{}/{}.ir", o.output_dir, c.seed);
  s.smallest.note =
      fmt::format("{} on {}\n{}\nfound with --seed {} --count 1, made small in {} steps\nrun again: random_graphs {}",
                  name_of(s.result.fault), r.variant, s.result.text, c.seed, s.tried, path);
  std::ofstream(path) << to_text(s.smallest);
  std::ofstream(path + ".whole") << to_text(c);
  fmt::print("{}\n", to_text(s.smallest));
  std::fflush(stdout);
}

CheckResult check_seed(uint64_t seed, const std::vector<std::string>& devices, const std::string& only) {
  const GraphCase c = generate_case(seed);
  const std::vector<Variant> variants = chosen(variants_for(seed, devices), only);
  if (variants.empty()) return {};
  CheckResult r = check_case(c, variants);
  if (r.fault != Fault::None) return r;
  r.text = test_comparison(c);
  if (!r.text.empty()) r.fault = Fault::Wrong, r.variant = "comparison";
  return r;
}

void print_totals(const Totals& t, Clock::time_point start) {
  const double all = std::max<double>(1, static_cast<double>(t.elements));
  fmt::print(
      "{} graphs, {} runs, {} elements compared in {:.0f} s: {} failures; {:.2f}% of elements unknown, {:.2f}% loose, "
      "{} outputs compared closely\n",
      t.graphs, t.runs, t.elements, std::chrono::duration<double>(Clock::now() - start).count(), t.failures,
      100 * static_cast<double>(t.unknown) / all, 100 * static_cast<double>(t.loose) / all, t.rescued);
  std::fflush(stdout);
}

/// In a child: a process that has opened a GPU must not fork.
bool devices_open(const Options& o) {
  CheckResult result;
  const auto open = [&](uint64_t) {
    CheckResult r;
    for (const std::string& d : o.devices)
      if (auto device = open_device(d); !device) r.fault = Fault::Refused, r.text = device.error().to_string();
    return r;
  };
  check_range(0, 1, 60, open, [&](uint64_t, const CheckResult& r) { result = r; });
  if (result.fault != Fault::None) fmt::print("{}\n", result.text);
  return result.fault == Fault::None;
}

int run_random(const Options& o) {
  const auto devices = devices_of(o);
  const auto start = Clock::now();
  Totals totals;
  const uint64_t last = o.seed + o.count;
  constexpr uint64_t kBatch = 50;  // graphs a process: what one leaks or breaks ends with it
  uint64_t shown = 0;
  for (uint64_t at = o.seed; at < last && totals.failures < static_cast<uint64_t>(o.most_failures);) {
    at = check_range(
        at, std::min(last, at + kBatch), o.seconds, [&](uint64_t seed) { return check_seed(seed, devices, o.only); },
        [&](uint64_t seed, const CheckResult& r) {
          totals.add(r);
          if (o.verbose) fmt::print("seed {}: {} runs, {}\n", seed, r.runs, name_of(r.fault));
          if (r.fault == Fault::None) return;
          ++totals.failures;
          report(o, generate_case(seed), r, chosen(variants_for(seed, devices), o.only));
        });
    if (totals.graphs / 500 != shown) shown = totals.graphs / 500, print_totals(totals, start);
    if (o.most_seconds > 0 && std::chrono::duration<double>(Clock::now() - start).count() > o.most_seconds) break;
  }
  print_totals(totals, start);
  return totals.failures ? 1 : 0;
}

int run_files(const Options& o) {
  int failed = 0;
  for (const std::string& path : o.files) {
    std::ifstream in(path);
    std::stringstream text;
    text << in.rdbuf();
    auto c = parse_case(text.str());
    if (!c) {
      fmt::print("{}: {}\n", path, c.error().to_string());
      return 2;
    }
    int bad = 0;
    for (const Variant& v : chosen(all_variants(devices_of(o)), o.only)) {
      const CheckResult r = check_isolated(*c, {v}, o.seconds);
      if (r.fault == Fault::None) continue;
      ++bad;
      fmt::print("{}: {} on {}: {}\n", path, name_of(r.fault), v.name(), r.text);
      if (r.fault == Fault::BadCase) break;
    }
    fmt::print("{}: {}\n", path, bad ? "FAIL" : "ok");
    failed += bad != 0;
  }
  return failed ? 1 : 0;
}

}  // namespace

int main(int argc, char** argv) {
  register_device("emulator", []() -> Result<OpenDevice> {
    return OpenDevice{INGOT_TRY(emulation::open_emulator_device()), kSourceTarget};
  });
  Options o;
  CLI::App app("random graphs against what their operators mean");
  app.add_option("files", o.files, "cases to run again");
  app.add_option("--count", o.count, "graphs");
  app.add_option("--seed", o.seed, "of the first graph; the next has the next one");
  app.add_option("--device", o.devices, "beside the interpreter: cpu, cuda:N");
  app.add_flag("--cuda-text", o.cuda_text, "some graphs also as CUDA text under the emulator");
  app.add_flag("--nvrtc", o.nvrtc, "the kernels of some graphs are compiled by NVRTC");
  app.add_option("--only", o.only, "variants with this text in their name");
  app.add_option("--output-dir", o.output_dir, "where failing graphs are written");
  app.add_option("--timeout", o.seconds, "seconds for one graph");
  app.add_option("--time-limit", o.most_seconds, "seconds for all");
  app.add_option("--max-failures", o.most_failures, "stop after so many");
  app.add_flag("--no-shrink", o.no_shrink, "write failing graphs as they are");
  app.add_flag("--print", o.print, "only print the graphs");
  app.add_flag("--verbose", o.verbose, "a line for each graph");
  CLI11_PARSE(app, argc, argv);
  if (o.print) {
    for (uint64_t s = o.seed; s < o.seed + o.count; ++s) fmt::print("{}\n", to_text(generate_case(s)));
    return 0;
  }
  if (!devices_open(o)) return 2;
  return o.files.empty() ? run_random(o) : run_files(o);
}
