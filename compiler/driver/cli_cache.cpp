// cache: the store of compiled kernels.
#include <fmt/format.h>

#include <cstdio>
#include <map>

#include "compiler/driver/cli.h"
#include "compiler/driver/targets.h"
#include "runtime/store.h"

namespace ingot::cli {
namespace {

struct CacheArgs {
  CommonOptions common;
  std::string what, model;
  std::vector<std::string> targets{"cpu"};
};

/// For each kernel of the model, whether its binaries are in the store, and if not, what of the key is new.
Outcome explain(const CacheArgs& a, runtime::Store& store) {
  if (a.model.empty()) return invalid("cache explain needs a model: ingot cache explain MODEL.onnx --target …");
  CompileOptions o = INGOT_TRY(a.common.to_compile());
  std::map<std::string, int> hits;
  int missing = 0;
  for (const std::vector<std::string>& group : INGOT_TRY(target_groups(a.targets))) {
    o.targets = group;
    const Compilation c = INGOT_TRY(lower_model(a.model, o));
    const TargetTraits traits = INGOT_TRY(traits_for(o));
    for (const Kernel& kernel : c.lowered.kernels)
      for (const NamedKey& k : INGOT_TRY(store_keys(kernel, group, traits))) {
        if (!hits.emplace(k.kernel, 0).second) continue;
        const std::string why = store.explain(k.key);
        if (why == "hit") continue;
        ++missing;
        fmt::print("  {}: {}\n", k.kernel, why);
      }
  }
  fmt::print("{}: of {} kernels, {} would be compiled\n", a.model, hits.size(), missing);
  return 0;
}

Outcome run_cache(const CacheArgs& a) {
  runtime::Store store;
  if (!store.usable()) return make_error(ErrorKind::Io, store.problem());
  if (a.what == "explain") return explain(a, store);
  if (a.what == "clear") fmt::print("{} entries removed from {}\n", store.clear(), store.root());
  if (a.what == "stats") {
    const auto s = store.stats();
    fmt::print("{}: {} entries, {}\n", store.root(), s.entries, human_bytes(static_cast<double>(s.bytes)));
  }
  if (a.what == "verify") {
    const auto bad = store.verify();
    for (const std::string& key : bad) fmt::print("removed a damaged entry: {}\n", key);
    fmt::print("{}: {} damaged entries\n", store.root(), bad.size());
  }
  return 0;
}

}  // namespace

std::function<Outcome()> add_cache(CLI::App& app) {
  auto a = std::make_shared<CacheArgs>();
  app.add_option("what", a->what, "stats, verify, clear, or explain: why a model's kernels would be compiled")
      ->required()
      ->check(CLI::IsMember({"stats", "verify", "clear", "explain"}));
  app.add_option("model", a->model, "MODEL.onnx, for explain");
  app.add_option("--target", a->targets, "as for compile")->delimiter(',');
  a->common.add(app);
  return [a] { return run_cache(*a); };
}

}  // namespace ingot::cli
