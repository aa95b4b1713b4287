// What verbs share that tune, and the verb of the process that measures for them.
#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>

#include "compiler/driver/cli.h"
#include "compiler/driver/tuning_worker.h"

namespace ingot::cli {
namespace {

/// "N=64,seq=128".
Result<std::map<std::string, int64_t>> read_dims(const std::string& text) {
  std::map<std::string, int64_t> dims;
  for (size_t from = 0; from <= text.size();) {
    const size_t end = std::min(text.find(',', from), text.size());
    const std::string item = text.substr(from, end - from);
    const size_t eq = item.find('=');
    const int64_t value = eq == std::string::npos ? 0 : std::atoll(item.c_str() + eq + 1);
    if (eq == 0 || value < 1)
      return invalid(fmt::format("--tune-at {}: write NAME=SIZE, with commas between several", text));
    dims[item.substr(0, eq)] = value;
    from = end + 1;
  }
  return dims;
}

void warn(const std::string& message) { fmt::print(stderr, "\r{}\n", message); }

}  // namespace

void TuneOptions::add(CLI::App& app) {
  app.add_option("--tune", seconds,
                 "GPUs: measure plans of kernels for about so many seconds, and take what is faster; 0: only what the "
                 "store has from before")
      ->check(CLI::Range(0.0, 86400.0));
  app.add_option("--tune-at", at,
                 "NAME=SIZE,…: dims to measure at; several times for several sizes. Without it leading dims are 1 and "
                 "64, others 64");
  app.add_option("--tune-device", device, "the GPU that measures");
}

Status TuneOptions::apply(CompileOptions& o) const {
  if (seconds < 0) {
    if (!at.empty()) return invalid("--tune-at says where to measure; --tune SECONDS is missing");
    return {};
  }
  o.tune_seconds = seconds;
  o.tune_device = device;
  o.warn = warn;
  if (at.empty()) return {};
  o.tune_at.clear();
  for (const std::string& text : at) {
    const auto dims = INGOT_TRY(read_dims(text));
    for (int64_t batch : {1, 64}) o.tune_at.push_back({batch, dims});
  }
  return {};
}

void print_tuning(const std::vector<TunedKernel>& tuned) {
  if (tuned.empty()) return;
  double before = 0, after = 0;
  size_t faster = 0, stored = 0;
  for (const TunedKernel& t : tuned) {
    before += t.default_us;
    after += t.us;
    faster += t.plan != t.default_plan;
    stored += t.from_store;
    const std::string at = t.at.empty() ? "" : " at " + t.at;
    if (t.plan != t.default_plan)
      fmt::print("    {}{}: {:.2f} us, default {:.2f}: {} in place of {}\n", t.kernel, at, t.us, t.default_us, t.plan,
                 t.default_plan);
    else
      fmt::print("    {}{}: {:.2f} us by the default, the best of {}: {}\n", t.kernel, at, t.default_us, t.measured,
                 t.plan);
    for (const std::string& d : t.dropped) fmt::print("      dropped {}\n", d);
  }
  fmt::print("  {} plans by measurement{}: {} other than the default; {:.1f} us in place of {:.1f} in sum\n",
             tuned.size(), stored ? fmt::format(", {} of them from the store", stored) : "", faster, after, before);
}

std::function<Outcome()> add_measure(CLI::App& app) {
  auto device = std::make_shared<std::string>();
  app.add_option("--device", *device, "")->required();
  return [device]() -> Outcome { return serve_worker(*device); };
}

}  // namespace ingot::cli
