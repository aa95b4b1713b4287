// test, check.
#include <fmt/format.h>

#include <atomic>
#include <cstdio>
#include <fstream>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <thread>

#include "compiler/driver/bisect.h"
#include "compiler/driver/cli.h"
#include "compiler/driver/devices.h"
#include "compiler/driver/test_case.h"

namespace ingot::cli {
namespace {

struct TestArgs {
  CommonOptions common;
  CaseOptions options;
  std::vector<std::string> folders;
  std::string manifest, only;
  int jobs = 1;
  bool json = false, list = false, unfused = false;
};

struct Tally {
  int passed = 0, failed = 0;
};

/// Category and tier of each case, by the name of its folder.
class Manifest {
 public:
  static Result<Manifest> read(const std::string& path) {
    Manifest m;
    if (path.empty()) return m;
    std::ifstream in(path);
    std::string line;
    if (!std::getline(in, line)) return make_error(ErrorKind::NotFound, fmt::format("cannot read {}", path));
    const std::vector<std::string> head = cells(line);
    auto column = [&](const char* name) { return std::find(head.begin(), head.end(), name) - head.begin(); };
    const auto name = column("case"), category = column("category"), tier = column("tier");
    while (std::getline(in, line)) {
      std::vector<std::string> row = cells(line);
      row.resize(head.size() + 1);
      m.rows_[row[static_cast<size_t>(name)]] = {row[static_cast<size_t>(category)], row[static_cast<size_t>(tier)]};
    }
    return m;
  }
  /// The groups a case is counted in.
  std::vector<std::string> groups(const std::string& name) const {
    auto it = rows_.find(name);
    if (it == rows_.end()) return {"not listed"};
    const auto& [category, tier] = it->second;
    if (tier.empty() || tier == "-") return {category};
    return {category + " " + tier, category + " all"};
  }
  bool empty() const { return rows_.empty(); }

 private:
  static std::vector<std::string> cells(const std::string& line) {
    std::vector<std::string> list;
    std::stringstream s(line);
    for (std::string c; std::getline(s, c, '\t');) list.push_back(c);
    return list;
  }
  std::map<std::string, std::pair<std::string, std::string>> rows_;
};

/// Runs the cases on several threads and reports them in order of completion.
class TestRun {
 public:
  TestRun(const TestArgs& args, const Manifest& manifest) : args_(args), manifest_(manifest) {}

  void run(const std::vector<std::filesystem::path>& models) {
    std::atomic<size_t> next{0};
    auto work = [&] {
      for (size_t i = next++; i < models.size(); i = next++) report(run_case(args_.options, models[i]));
    };
    std::vector<std::thread> threads;
    for (int i = 1; i < args_.jobs; ++i) threads.emplace_back(work);
    work();
    for (std::thread& t : threads) t.join();
  }

  int finish() const {
    if (args_.json) {
      fmt::print("{}\n", nlohmann::json({{"passed", total_.passed}, {"failed", total_.failed}, {"specialised", specialised_}, {"failures", failures_}}).dump(1));
    } else {
      if (!manifest_.empty())
        for (const auto& [group, t] : groups_) fmt::print("{:<28} {:>5} of {:>5}\n", group, t.passed, t.passed + t.failed);
      if (specialised_) fmt::print("{} passed only with inputs as constants\n", specialised_);
      fmt::print("{} passed, {} failed on {}\n", total_.passed, total_.failed, args_.options.device);
    }
    return total_.failed ? 1 : 0;
  }

 private:
  void report(const std::vector<CaseResult>& results) {
    std::lock_guard<std::mutex> lock(mutex_);
    for (const CaseResult& r : results) {
      const bool ok = r.share.ok();
      ++(ok ? total_.passed : total_.failed);
      specialised_ += ok && !r.specialised.empty();
      for (const std::string& g : manifest_.groups(r.name.substr(0, r.name.find('/')))) ++(ok ? groups_[g].passed : groups_[g].failed);
      const std::string constants = r.specialised.empty() ? "" : fmt::format(" (constant: {})", r.specialised);
      if (!ok) failures_.push_back({{"case", r.name}, {"error", r.share.error().message}});
      if (args_.json) continue;
      if (!ok) fmt::print("FAIL  {}{}: {}\n", r.name, constants, r.share.error().to_string());
      else if (args_.list) fmt::print("ok    {}{}: {:.0f}% of the tolerance\n", r.name, constants, 100 * r.share.value());
      std::fflush(stdout);
    }
  }

  const TestArgs& args_;
  const Manifest& manifest_;
  std::mutex mutex_;
  Tally total_;
  int specialised_ = 0;
  std::map<std::string, Tally> groups_;
  nlohmann::json failures_ = nlohmann::json::array();
};

Outcome run_test(TestArgs& a) {
  auto models = find_models(a.folders);
  if (!a.only.empty())
    std::erase_if(models, [&](const auto& p) { return p.parent_path().filename().string().find(a.only) == std::string::npos; });
  if (models.empty()) return make_error(ErrorKind::NotFound, "no .onnx file in the folders given");
  const Manifest manifest = INGOT_TRY(Manifest::read(a.manifest));
  a.options.compile = INGOT_TRY(a.common.to_compile());
  a.options.compile.fuse = !a.unfused;
  if (a.jobs > 1) {
    a.options.compile.threads = 1;
    a.options.compile.progress = nullptr;
  }
  // A device opened for each model alone would be set up and torn down as often.
  const bool has_device = a.options.device != "interpreter";
  const auto device = has_device ? INGOT_TRY(open_device(a.options.device)) : OpenDevice{};
  TestRun run(a, manifest);
  run.run(models);
  return run.finish();
}

struct CheckArgs {
  CommonOptions common;
  std::string model, device;
  std::vector<std::string> inputs;
  std::vector<int64_t> batches{1, 3};
  Tolerance tolerance{1e-3, 1e-4};
};

/// Names the first element of each output that differs, and what is to blame for the first difference of all.
Outcome run_check(const CheckArgs& a) {
  CompileOptions o = INGOT_TRY(a.common.to_compile());
  const Model fused = INGOT_TRY(Model::load(a.model, a.device, o));
  const Model reference = INGOT_TRY(Model::load(a.model, "interpreter", without_passes(o)));
  std::vector<std::vector<Tensor>> wrong;  // inputs that give a wrong output
  for (int64_t batch : a.batches) {
    const auto inputs = INGOT_TRY(read_inputs(fused.inputs(), fused.program(), a.inputs, true, batch, 7));
    const auto got = INGOT_TRY(fused.run_ordered(inputs)), want = INGOT_TRY(reference.run_ordered(inputs));
    bool equal = true;
    for (size_t i = 0; i < got.size(); ++i) {
      const Comparison c = compare(got[i], want[i], a.tolerance);
      equal &= c.equal;
      fmt::print("batch {:<4} {:<28} {}\n", batch, fused.outputs()[i].name, c.equal ? fmt::format("equal, {:.1f}% of the tolerance", 100 * c.worst) : c.text);
    }
    if (!equal) wrong.push_back(inputs);
  }
  Explanation why{"", false};
  for (size_t i = 0; i < wrong.size() && !why.is_fault; ++i)
    why = INGOT_TRY(explain_difference(a.model, a.device, o, wrong[i], a.tolerance));
  if (!wrong.empty()) fmt::print("{}\n", why.text);
  fmt::print("the fused program {}{}\n", why.is_fault ? "differs from the unfused one" : "equals the unfused one",
             wrong.empty() || why.is_fault ? "" : ", but for ties of rounding");
  return why.is_fault ? 1 : 0;
}

}  // namespace

std::function<Outcome()> add_test(CLI::App& app) {
  auto a = std::make_shared<TestArgs>();
  app.add_option("folders", a->folders, "folders with model.onnx and test_data_set_N, at any depth")->required();
  app.add_option("--device", a->options.device, "cpu, cuda:N, interpreter");
  app.add_option("--rtol", a->options.tolerance.rtol, "where no index.tsv says otherwise");
  app.add_option("--atol", a->options.tolerance.atol, "");
  app.add_option("--manifest", a->manifest, "table with case, category and tier: counts by those");
  app.add_option("--jobs", a->jobs, "cases at a time");
  app.add_option("--only", a->only, "cases whose folder has this text in its name");
  app.add_flag("--unfused", a->unfused, "every operator a kernel of its own");
  app.add_flag("--smallest", a->options.smallest, "only the smallest data set of each model");
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
  app.add_option("--rtol", a->tolerance.rtol, "");
  app.add_option("--atol", a->tolerance.atol, "");
  a->common.add(app);
  return [a] { return run_check(*a); };
}

}  // namespace ingot::cli
