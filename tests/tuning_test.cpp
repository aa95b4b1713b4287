// Tuning without a GPU: which candidates there are, what is chosen from given measurements, what is kept in the store
// and when it is found again, that the time is kept, and that a process that measures may crash, hang or talk nonsense.
#include <fmt/format.h>
#include <signal.h>

#include <filesystem>
#include <set>

#include "catch2/catch.hpp"
#include "compiler/driver/tuning.h"
#include "compiler/driver/tuning_worker.h"
#include "compiler/expr/simplify.h"

using namespace ingot;

namespace {

constexpr const char* kDigits = "examples/digits/digits.onnx";

Compilation lowered(const std::string& target, const std::string& precision = "fp16") {
  CompileOptions o;
  o.targets = {target};
  o.precision = precision;
  auto c = lower_model(kDigits, o);
  if (!c) FAIL(c.error().to_string());
  return std::move(*c);
}

/// acc = sum of a[m,k] * b[k,n], stored as f16.
Kernel product(const Expr& m, int64_t n, int64_t k) {
  Kernel kernel;
  kernel.name = "matmul";
  const Expr i = Expr::index("m", m), j = Expr::index("n", n), l = Expr::index("k", k),
             acc = Expr::local("acc", DType::F32);
  kernel.buffers = {
      {"a", DType::F16, {m, k}}, {"b", DType::F16, {k, n}, false, true}, {"out", DType::F16, {m, n}, true}};
  if (m.op() == ExprOp::Symbol) kernel.dims = {m};
  Contract c;
  c.m = {{i, m}}, c.n = {{j, n}}, c.k = {{l, k}};
  c.a = cast(DType::F32, Expr::load(0, DType::F16, i * k + l));
  c.b = cast(DType::F32, Expr::load(1, DType::F16, l * n + j));
  c.a_type = c.b_type = DType::F16;
  c.acc = acc;
  c.epilogue.push_back({Store{2, i * n + j, acc}});
  kernel.body.push_back({c});
  return kernel;
}

struct Folder {
  std::string path;
  Folder() {
    std::string name = (std::filesystem::temp_directory_path() / "tuning-test-XXXXXX").string();
    path = mkdtemp(name.data());
  }
  ~Folder() { std::filesystem::remove_all(path); }
};

/// A device with a clock of its own on which the plan of the given rank is fastest.
struct FakeDevice {
  double clock = 100, seconds_each = 1;
  size_t rounds = 0, programs = 0, fastest = 1;
  double gain = 0.2, noise = 0;
  std::vector<std::string> names, warnings;
  std::vector<std::string> progress;
  std::function<void(std::vector<Timing>&)> change = [](auto&) {};

  TuningTools tools(runtime::Store* store, const std::string& description = "fake GPU") {
    TuningTools t{{"source"}, traits_of({"source"}).value(), description, store, 1000, 2, {}, {}, {}, {}};
    t.now = [this] { return clock; };
    t.measure = [this](const auto& p) -> Result<std::vector<Timing>> {
      ++rounds;
      programs += p.size();
      names.push_back(p[0]->model_name);
      clock += seconds_each;
      std::vector<Timing> timings(p.size());
      for (Timing& x : timings) x.us = 10, x.noise = noise;
      if (fastest < p.size()) timings[fastest].us = 10 * (1 - gain), timings[fastest].ratio = 1 - gain;
      change(timings);
      return timings;
    };
    t.progress = [this](const std::string& what, size_t done, size_t total) {
      progress.push_back(fmt::format("{} {}/{}", what, done, total));
    };
    t.warn = [this](const std::string& text) { warnings.push_back(text); };
    return t;
  }
};
Tuning tune(const Compilation& c, const TuningTools& tools, std::vector<TuningPoint> points = {{1, {}}, {64, {}}}) {
  KernelsAt list{&c.lowered.kernels, {}};
  for (const TuningPoint& p : points) list.points.push_back(dims_at(c.graph, p));
  return tune_kernels({list}, tools);
}

/// A worker that is a shell script. `read_round` reads a request; $n is then its number of files.
std::vector<std::string> script(const std::string& body) {
  return {
      "/bin/sh", "-c",
      "read_round() { read word n || exit 0; i=0; while [ $i -lt $n ]; do read f; eval f$i=$f; i=$((i+1)); done; }\n" +
          body};
}
std::vector<std::shared_ptr<const runtime::Program>> some_programs(size_t count) {
  const Kernel kernel = product(64, 32, 16);
  const PlannedKernel planned = plan_kernel(kernel, traits_of({"source"}).value());
  auto emitted = emit_forms(planned, traits_of({"source"}).value());
  REQUIRE(emitted.ok());
  const BuiltKernel built = build_cuda(kernel, emitted->at(0), {"source"}, nullptr).value();
  auto p = program_of_launch(planned.kernel, built, {}, "source");
  if (!p) FAIL(p.error().to_string());
  return std::vector<std::shared_ptr<const runtime::Program>>(count,
                                                              std::make_shared<const runtime::Program>(std::move(*p)));
}

}  // namespace

TEST_CASE("candidates begin with the default, differ, fit, and are of several structures") {
  for (const auto& [target, m] :
       {std::pair{"sm_90a", 4096}, std::pair{"sm_90a", 128}, std::pair{"sm_80", 1024}, std::pair{"sm_75", 1024}}) {
    const TargetTraits traits = traits_of({target}).value();
    const PlannedKernel planned = plan_kernel(product(m, 768, 3072), traits);
    const TuningCandidates c = tuning_candidates(planned, traits, {});
    INFO(target << " " << m);
    REQUIRE(c.schedules.size() >= 4);
    CHECK(c.schedules.size() <= 8);
    CHECK(same_plan(c.schedules[0], planned.forms[0]));
    std::set<std::string> texts;
    std::set<int> kinds;
    for (const Schedule& s : c.schedules) {
      auto emitted = emit_forms({planned.kernel, {s}}, traits);
      REQUIRE(emitted.ok());
      CHECK(emitted->at(0).shared_bytes <= traits.shared_bytes);
      texts.insert(cuda_cache_text(emitted->at(0)));
      kinds.insert(s.tile.boxes ? 3 + s.tile.in_turn : s.tile.warpgroups ? 2 : 1);
    }
    CHECK(texts.size() == c.schedules.size());
    if (traits.compute_capability == 90) CHECK(kinds.size() >= 3);
    else CHECK(kinds == std::set<int>{1});
  }
}

TEST_CASE("kernels of a whole model have candidates for attention, windows and plain tiles as well") {
  const TargetTraits traits = traits_of({"sm_90a"}).value();
  Kernel plain = product(512, 256, 64);
  for (Stmt& s : plain.body)
    std::get<Contract>(s.node).a_type = DType::F64, std::get<Contract>(s.node).acc = Expr::local("acc", DType::F64);
  CHECK(tuning_candidates(plan_kernel(plain, traits), traits, {}).schedules.size() >= 3);
  Kernel thin = product(4, 4096, 4096);
  CHECK(tuning_candidates(plan_kernel(thin, traits), traits, {}).schedules.size() != 1);
  Kernel points;  // nothing to choose
  const Expr i = Expr::index("i", 100);
  points.buffers = {{"x", DType::F32, {100}}, {"y", DType::F32, {100}, true}};
  points.domain = {{i, 100}};
  points.body.push_back({Store{1, i, Expr::load(0, DType::F32, i)}});
  CHECK(tuning_candidates(plan_kernel(points, traits), traits, {}).schedules.empty());
}

TEST_CASE("a dynamic kernel is tuned in the form that its size launches, and the forms still cover all sizes") {
  const TargetTraits traits = traits_of({"sm_90a"}).value();
  const Expr n = Expr::symbol("N", 1, kNoLimit);
  const PlannedKernel planned = plan_kernel(product(n * 1, 768, 768), traits);
  REQUIRE(planned.forms.size() >= 2);
  const TuningCandidates few = tuning_candidates(planned, traits, {{"N", 1}}),
                         many = tuning_candidates(planned, traits, {{"N", 4096}});
  CHECK(few.form == 0);
  CHECK(many.form == planned.forms.size() - 1);
  CHECK(many.results == 4096 * 768);
  const auto covers = [](const std::vector<Schedule>& forms) {
    CHECK(forms.front().from == 0);
    CHECK(forms.back().below == 0);
    for (size_t i = 1; i < forms.size(); ++i) CHECK(forms[i].from == forms[i - 1].below);
  };
  covers(planned.forms);
  const Schedule other = many.schedules[1], third = many.schedules[2];
  const auto swapped = tuned_forms(planned.forms, {{many.results, other}});
  covers(swapped);
  CHECK(same_plan(swapped.back(), other));
  CHECK(same_plan(swapped[0], planned.forms[0]));
  // Two sizes in one form: each has its plan, and the border lies between them.
  const auto cut = tuned_forms({many.schedules[0]}, {{100000, other}, {1000, third}});
  REQUIRE(cut.size() == 2);
  covers(cut);
  CHECK((cut[0].below > 1000 && cut[0].below <= 100000));
  CHECK(cut[0].below == 10001);
  CHECK((same_plan(cut[0], third) && same_plan(cut[1], other)));
  CHECK(tuned_forms({many.schedules[0]}, {{1000, other}, {2000, other}}).size() == 1);
}

TEST_CASE("only what wins by more than noise, and is right, takes the default's place") {
  const auto of = [](double ratio, double noise) { return Timing{10 * ratio, ratio, noise, true, ""}; };
  CHECK(fastest_of({of(1, 0), of(0.9, 0.01)}) == 1);
  CHECK(fastest_of({of(1, 0), of(0.9, 0.01), of(0.8, 0.01)}) == 2);
  CHECK(fastest_of({of(1, 0), of(0.99, 0)}) == 0);
  CHECK(fastest_of({of(1, 0), of(0.9, 0.04)}) == 0);
  CHECK(fastest_of({of(1, 0), of(1.1, 0)}) == 0);
  CHECK(fastest_of({}) == 0);
  Timing wrong = of(0.5, 0), failed = of(0.5, 0);
  wrong.agrees = false;
  failed.failure = "hangs";
  CHECK(fastest_of({of(1, 0), wrong, failed}) == 0);
  CHECK(fastest_of({of(1, 0), wrong, failed, of(0.9, 0)}) == 3);
}

TEST_CASE("what was measured is in the store, under all that decides it") {
  const Folder folder;
  runtime::Store store(folder.path);
  const Compilation c = lowered("source");
  FakeDevice device;
  const Tuning first = tune(c, device.tools(&store));
  REQUIRE(device.rounds > 0);
  CHECK(first.left == 0);
  CHECK(first.tuned.size() == device.rounds);
  CHECK(!first.plans.empty());
  for (const TunedKernel& t : first.tuned) {
    CHECK(t.us == Approx(8));
    CHECK(t.default_us == Approx(10));
    CHECK((t.plan != t.default_plan && !t.from_store && t.measured >= 2));
  }
  CHECK(device.progress.front().find("1000 s left") != std::string::npos);
  CHECK(device.progress.back().find(fmt::format("{0}/{0}", device.rounds)) != std::string::npos);

  FakeDevice again;
  const Tuning second = tune(c, again.tools(&store));
  CHECK(again.rounds == 0);
  REQUIRE(second.tuned.size() == first.tuned.size());
  for (size_t i = 0; i < second.tuned.size(); ++i) {
    CHECK(second.tuned[i].from_store);
    CHECK(second.tuned[i].plan == first.tuned[i].plan);
    CHECK(second.tuned[i].us == first.tuned[i].us);
  }
  REQUIRE(second.plans.size() == first.plans.size());
  for (const auto& [text, planned] : first.plans) {
    REQUIRE(second.plans.count(text));
    REQUIRE(second.plans.at(text).forms.size() == planned.forms.size());
    for (size_t f = 0; f < planned.forms.size(); ++f)
      CHECK(same_plan(second.plans.at(text).forms[f], planned.forms[f]));
  }

  SECTION("another device, other sizes") {
    FakeDevice other;
    tune(c, other.tools(&store, "another GPU"));
    CHECK(other.rounds == device.rounds);
    FakeDevice sizes;
    tune(c, sizes.tools(&store), {{7, {}}});
    CHECK(sizes.rounds > 0);
  }
  SECTION("other kernels") {
    FakeDevice other;
    tune(lowered("source", "fp32"), other.tools(&store));
    CHECK(other.rounds > 0);
  }
  SECTION("without time only the store counts") {
    FakeDevice none;
    TuningTools tools = none.tools(&store);
    tools.seconds = 0;
    CHECK(tune(c, tools).tuned.size() == first.tuned.size());
    tools.device = "a third GPU";
    const Tuning nothing = tune(c, tools);
    CHECK((nothing.tuned.empty() && nothing.plans.empty() && none.rounds == 0));
  }
}

TEST_CASE("the key of a measurement changes with each thing that decides it") {
  const TargetTraits traits = traits_of({"source"}).value();
  const PlannedKernel planned = plan_kernel(product(64, 64, 64), traits);
  const TuningCandidates c = tuning_candidates(planned, traits, {});
  std::vector<EmittedKernel> emitted;
  for (const Schedule& s : c.schedules) emitted.push_back(emit_forms({planned.kernel, {s}}, traits).value().at(0));
  FakeDevice device;
  TuningTools tools = device.tools(nullptr);
  std::set<std::string> keys{tuning_key(tools, {}, emitted).hash().hex()};
  CHECK(!keys.insert(tuning_key(tools, {}, emitted).hash().hex()).second);
  CHECK(keys.insert(tuning_key(tools, {{"N", 4}}, emitted).hash().hex()).second);
  tools.device = "other";
  CHECK(keys.insert(tuning_key(tools, {}, emitted).hash().hex()).second);
  tools.targets = {"sm_90a"};
  CHECK(keys.insert(tuning_key(tools, {}, emitted).hash().hex()).second);
  emitted.pop_back();
  CHECK(keys.insert(tuning_key(tools, {}, emitted).hash().hex()).second);
  emitted[0].source += "// another generator\n";
  CHECK(keys.insert(tuning_key(tools, {}, emitted).hash().hex()).second);
}

TEST_CASE("the time is kept, and the kernels that take longest come first") {
  const Compilation c = lowered("source");
  FakeDevice all;
  tune(c, all.tools(nullptr));
  FakeDevice device;
  device.seconds_each = 3;
  TuningTools tools = device.tools(nullptr);
  tools.seconds = 10;
  const Tuning t = tune(c, tools);
  CHECK(device.clock - 100 <= 10);
  CHECK(device.rounds == 3);
  CHECK(t.tuned.size() == 3);
  CHECK(t.left == all.rounds - 3);
  CHECK(std::vector<std::string>(all.names.begin(), all.names.begin() + 3) == device.names);
}

TEST_CASE("noise, wrong results and failures leave the default") {
  const Compilation c = lowered("source");
  FakeDevice device;
  device.noise = 0.1;
  CHECK(tune(c, device.tools(nullptr)).plans.empty());
  device.noise = 0;
  device.change = [](std::vector<Timing>& t) { t[1].agrees = false; };
  const Tuning wrong = tune(c, device.tools(nullptr));
  CHECK(wrong.plans.empty());
  CHECK(wrong.tuned[0].dropped.size() == 1);
  CHECK(device.warnings.at(0).find("differ") != std::string::npos);
  device.change = [](std::vector<Timing>& t) { t[1].failure = "no answer in 10 s"; };
  CHECK(tune(c, device.tools(nullptr)).plans.empty());
  CHECK(device.warnings.back().find("no answer") != std::string::npos);
  TuningTools tools = device.tools(nullptr);
  tools.measure = [](const auto&) -> Result<std::vector<Timing>> {
    return make_error(ErrorKind::Device, "the device is gone");
  };
  const Tuning gone = tune(c, tools);
  CHECK((gone.plans.empty() && gone.tuned.empty()));
  CHECK(device.warnings.back().find("the device is gone") != std::string::npos);
}

TEST_CASE("a tuned plan is what is compiled") {
  const Compilation c = lowered("source");
  FakeDevice device;
  const Tuning t = tune(c, device.tools(nullptr));
  const auto plans = std::make_shared<const TunedPlans>(t.plans);
  const TargetTraits traits = traits_of({"source"}).value();
  const KernelCompiler with =
      kernel_compiler({"source"}, traits, std::make_shared<runtime::Store>("/nonexistent/store"), plans).value();
  size_t changed = 0;
  for (const Kernel& k : c.lowered.kernels) {
    const auto forms = with(k).value(), usual = kernel_namer(traits)(k).value();
    const bool tuned = t.plans.count(to_string(k)) > 0;
    const bool same = forms.size() == usual.size() &&
                      std::equal(forms.begin(), forms.end(), usual.begin(),
                                 [](const auto& a, const auto& b) { return a.info.name == b.info.name; });
    CHECK(same == !tuned);
    changed += tuned;
  }
  CHECK(changed == t.plans.size());
}

TEST_CASE("a worker that answers is believed") {
  TuningWorker worker(
      {script("echo ready; while :; do read_round; i=0; while [ $i -lt $n ]; do echo start $i; [ -s $(eval echo "
              "\\$f$i) ] || exit 9; i=$((i+1)); done; "
              "echo time 0 10 1 0.01 1; echo time 1 5 0.5 0.02 1; echo time 2 4 0.4 0.01 0; echo end; done"),
       5, 5});
  for (int round = 0; round < 2; ++round) {
    const auto timings = worker.measure(some_programs(3));
    REQUIRE(timings.ok());
    CHECK(timings.value()[1].us == 5);
    CHECK(timings.value()[1].ratio == 0.5);
    CHECK(timings.value()[1].noise == 0.02);
    CHECK((timings.value()[1].agrees && !timings.value()[2].agrees));
  }
}

TEST_CASE("a candidate that crashes, hangs or talks nonsense is dropped, and the others are measured") {
  const Folder folder;
  // The third candidate of the first round is bad; the process that comes next has two to measure.
  const auto bad = [&](const std::string& deed) {
    std::filesystem::remove(folder.path + "/seen");
    return script(
        fmt::format("echo ready; read_round; if [ ! -e {0}/seen ]; then touch {0}/seen; echo start 0; echo start 1; "
                    "echo start 2; {1}; fi; "
                    "[ $n = 3 ] || echo nonsense $n; echo start 0; echo time 0 10 1 0 1; echo time 1 9 0.9 0 1; echo "
                    "time 2 8 0.8 0 1; echo end; read more",
                    folder.path, deed));
  };
  const struct {
    const char *deed, *expected;
  } kDeeds[] = {{"kill -SEGV $$", "signal 11"},
                {"exit 7", "code 7"},
                {"sleep 100", "no answer in 0.5 s"},
                {"echo failed illegal address; exit 3", "illegal address"},
                {"echo what", "the process said: what"}};
  for (const auto& [deed, expected] : kDeeds) {
    INFO(deed);
    TuningWorker worker({bad(deed), 0.5, 5});
    const auto timings = worker.measure(some_programs(4));
    REQUIRE(timings.ok());
    CHECK(timings.value()[2].failure.find(expected) != std::string::npos);
    CHECK(timings.value()[0].us == 10);
    CHECK(timings.value()[1].us == 9);
    CHECK(timings.value()[3].us == 8);
    for (size_t i : {0, 1, 3}) CHECK(timings.value()[i].failure.empty());
    CHECK(fastest_of(timings.value()) == 3);
  }
}

TEST_CASE("where the default fails there is no winner, and where no process starts there is an error") {
  TuningWorker first({script("echo ready; read_round; echo start 0; exit 1"), 1, 5});
  const auto timings = first.measure(some_programs(2));
  REQUIRE(timings.ok());
  CHECK(!timings.value()[0].failure.empty());
  CHECK(fastest_of(timings.value()) == 0);
  TuningWorker none({{"/nonexistent/program"}, 1, 1});
  CHECK(!none.measure(some_programs(2)).ok());
  TuningWorker silent({script("sleep 100"), 1, 0.3});
  CHECK(!silent.measure(some_programs(2)).ok());
  TuningWorker no_gpu({script("echo failed error: there is no GPU 3; exit 3"), 1, 5});
  const auto error = no_gpu.measure(some_programs(2));
  REQUIRE(!error.ok());
  CHECK(error.error().message.find("no GPU 3") != std::string::npos);
}
