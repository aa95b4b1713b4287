#include "compiler/driver/tuning.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <sstream>
#include <thread>

#include "codegen/cuda/nvrtc.h"
#include "compiler/expr/simplify.h"

namespace ingot {
namespace {

/// A kernel at some sizes, on its way from candidates to a winner.
struct Job {
  const Kernel* kernel = nullptr;
  std::string text;  // the kernel's
  const PlannedKernel* planned = nullptr;
  TuningCandidates candidates;
  std::vector<EmittedKernel> emitted;  // of the candidates
  double weight = 0;                   // nanoseconds of the model, roughly
  std::vector<std::shared_ptr<const runtime::Program>> programs;  // null: it did not compile
  std::vector<Timing> timings;         // empty: not measured
  bool from_store = false, compiled = false;
};

std::string text_of(const DimValues& at) {
  std::vector<std::string> items;
  for (const auto& [name, value] : at) items.push_back(fmt::format("{}={}", name, value));
  std::sort(items.begin(), items.end());
  return fmt::format("{}", fmt::join(items, ", "));
}

DimValues of_kernel(const Kernel& kernel, const DimValues& point) {
  DimValues at;
  for (const Expr& d : kernel.dims)
    if (const auto it = point.find(d.name()); it != point.end()) at.insert(*it);
  return at;
}

double roof_ns(const Kernel& kernel, const TargetTraits& t, const DimValues& at) {
  const auto number = [&](const Expr& e) { return static_cast<double>(evaluate_int(e, at).value_or(0)); };
  return std::max(number(kernel_bytes(kernel)) / t.memory_gbps, number(kernel_flops(kernel)) / t.f32_gflops) + 2000;
}

std::string text_of(const std::vector<Timing>& timings, const std::vector<Schedule>& schedules) {
  std::string text = "# us, time over the default's, its noise, agrees, plan or what went wrong\n";
  for (size_t i = 0; i < timings.size(); ++i) {
    const Timing& t = timings[i];
    text += fmt::format("{} {} {} {:d} {}\n", t.us, t.ratio, t.noise, t.agrees,
                        t.failure.empty() ? to_string(schedules[i]) : "failed: " + t.failure);
  }
  return text;
}
/// Nothing where the text is not of `count` lines as above.
std::vector<Timing> timings_of(const std::string& text, size_t count) {
  std::istringstream in(text);
  std::string line;
  std::getline(in, line);
  std::vector<Timing> timings;
  for (Timing t; in >> t.us >> t.ratio >> t.noise >> t.agrees && std::getline(in, line); t = {}) {
    if (line.rfind(" failed: ", 0) == 0) t.failure = line.substr(9);
    timings.push_back(std::move(t));
  }
  return timings.size() == count ? timings : std::vector<Timing>();
}

/// Compiles jobs in order, some ahead of the one that is measured.
class Compilers {
 public:
  Compilers(std::vector<Job*> jobs, const TuningTools& tools, double deadline)
      : jobs_(std::move(jobs)), tools_(tools), deadline_(deadline) {
    for (int t = 0; t < std::max(1, tools.threads); ++t) workers_.emplace_back([this] { work(); });
  }
  ~Compilers() {
    stopped_ = true;
    for (std::thread& t : workers_) t.join();
  }
  /// False where the time was over before it was compiled.
  bool wait_for(const Job& job) {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [&] { return job.compiled || idle_ == workers_.size(); });
    return job.compiled;
  }

 private:
  void work() {
    for (size_t i; !stopped_ && tools_.now() < deadline_ && (i = next_++) < pieces();) {
      const auto [job, candidate] = piece(i);
      auto program = compile(*job, candidate);
      const std::lock_guard<std::mutex> lock(mutex_);
      if (program) job->programs[candidate] = *program;
      else job->timings[candidate].failure = program.error().message;
      job->compiled = ++done_[job] == job->emitted.size();
      changed_.notify_all();
    }
    const std::lock_guard<std::mutex> lock(mutex_);
    ++idle_;
    changed_.notify_all();
  }
  size_t pieces() const {
    size_t n = 0;
    for (const Job* j : jobs_) n += j->emitted.size();
    return n;
  }
  std::pair<Job*, size_t> piece(size_t i) const {
    size_t job = 0;
    while (i >= jobs_[job]->emitted.size()) i -= jobs_[job++]->emitted.size();
    return {jobs_[job], i};
  }
  Result<std::shared_ptr<const runtime::Program>> compile(const Job& job, size_t candidate) const {
    const BuiltKernel built =
        INGOT_TRY(build_cuda(job.planned->kernel, job.emitted[candidate], tools_.targets, tools_.store));
    runtime::Program p = INGOT_TRY(program_of_launch(job.planned->kernel, built, job.candidates.at,
                                                     fmt::format("{}", fmt::join(tools_.targets, ","))));
    return std::make_shared<const runtime::Program>(std::move(p));
  }

  std::vector<Job*> jobs_;
  const TuningTools& tools_;
  double deadline_;
  std::vector<std::thread> workers_;
  std::atomic<size_t> next_{0};
  std::atomic<bool> stopped_{false};
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<const Job*, size_t> done_;
  size_t idle_ = 0;
};

class Tuner {
 public:
  Tuner(const std::vector<KernelsAt>& kernels, const TuningTools& tools) : tools_(tools) {
    for (const KernelsAt& list : kernels)
      for (const Kernel& k : *list.kernels) add(k, list.points);
  }
  Tuning run() {
    std::vector<Job*> open;
    for (Job& j : jobs_) {
      look_up(j);
      if (!j.from_store) open.push_back(&j);
    }
    std::stable_sort(open.begin(), open.end(), [](const Job* a, const Job* b) { return a->weight > b->weight; });
    if (tools_.seconds > 0 && !open.empty()) measure(open);
    return result();
  }

 private:
  void add(const Kernel& k, const std::vector<DimValues>& points) {
    const std::string text = to_string(k);
    auto [it, fresh] = planned_.try_emplace(text);
    if (fresh) it->second = std::make_unique<PlannedKernel>(plan_kernel(k, tools_.traits));
    for (const DimValues& point : points) {
      const DimValues at = of_kernel(k, point);
      const auto known = std::find_if(jobs_.begin(), jobs_.end(),
                                      [&](const Job& j) { return j.text == text && j.candidates.at == at; });
      const double ns = roof_ns(k, tools_.traits, at);
      if (known != jobs_.end()) {
        if (&point == &points[0]) known->weight += ns;
        continue;
      }
      Job job{&k,    text, it->second.get(), tuning_candidates(*it->second, tools_.traits, at), {}, ns, {}, {},
              false, false};
      emit(job);
      if (job.emitted.size() > 1) jobs_.push_back(std::move(job));
    }
  }
  /// The texts; a candidate that cannot be printed is none.
  void emit(Job& job) {
    std::vector<Schedule> printed;
    for (const Schedule& s : job.candidates.schedules) {
      auto emitted = emit_forms({job.planned->kernel, {s}}, tools_.traits);
      if (!emitted && printed.empty()) return;  // the default
      if (!emitted) continue;
      job.emitted.push_back(std::move(emitted->at(0)));
      printed.push_back(s);
    }
    job.candidates.schedules = std::move(printed);
  }
  void look_up(Job& job) {
    if (!tools_.store) return;
    const auto hit = tools_.store->find(tuning_key(tools_, job.candidates.at, job.emitted));
    if (!hit || !hit->count("timings")) return;
    const std::vector<uint8_t>& bytes = hit->at("timings");
    job.timings = timings_of({bytes.begin(), bytes.end()}, job.emitted.size());
    job.from_store = !job.timings.empty();
  }
  void keep(const Job& job) {
    if (!tools_.store) return;
    const std::string text = text_of(job.timings, job.candidates.schedules);
    tools_.store->put(tuning_key(tools_, job.candidates.at, job.emitted), {{"timings", {text.begin(), text.end()}}});
  }
  void report(size_t done, size_t total, double start) {
    if (!tools_.progress) return;
    const double now = tools_.now(), left = start + tools_.seconds - now;
    const double each = done > 0 ? (now - start) / static_cast<double>(done) : 0;
    const double wanted = done > 0 ? std::min(left, each * static_cast<double>(total - done)) : left;
    tools_.progress(fmt::format("tuning, {:.0f} s left, kernel", std::max(wanted, 0.0)), done, total);
  }
  void measure(const std::vector<Job*>& open) {
    const double start = tools_.now(), deadline = start + tools_.seconds;
    for (Job* j : open) {
      j->programs.resize(j->emitted.size());
      j->timings.resize(j->emitted.size());
    }
    Compilers compilers(open, tools_, deadline);
    double longest = 0;
    size_t done = 0;
    report(done, open.size(), start);
    for (Job* job : open) {
      const bool ready = compilers.wait_for(*job);
      const double from = tools_.now();
      if (!ready || from + longest > deadline) break;
      if (const Status measured = measure(*job); !measured) {
        if (tools_.warn) tools_.warn("tuning stopped: " + measured.error().to_string());
        break;
      }
      longest = std::max(longest, tools_.now() - from);
      keep(*job);
      report(++done, open.size(), start);
    }
    if (done < open.size() && tools_.progress) tools_.progress("tuning, out of time, kernel", open.size(), open.size());
    for (size_t i = done; i < open.size(); ++i) open[i]->timings.clear();
  }
  /// Fills in the timings of the candidates that compiled.
  Status measure(Job& job) {
    std::vector<std::shared_ptr<const runtime::Program>> programs;
    std::vector<size_t> which;
    for (size_t i = 0; i < job.programs.size(); ++i)
      if (job.programs[i]) programs.push_back(job.programs[i]), which.push_back(i);
    if (which.empty() || which[0] != 0) return {};  // without the default there is nothing to compare with
    const std::vector<Timing> timings = INGOT_TRY(tools_.measure(programs));
    if (timings.size() != programs.size())
      return make_error(ErrorKind::Internal, "a measurement of another number of candidates");
    for (size_t i = 0; i < which.size(); ++i) job.timings[which[i]] = timings[i];
    for (size_t i = 0; i < job.timings.size(); ++i) {
      const Timing& t = job.timings[i];
      const std::string wrong = !t.failure.empty() ? t.failure
                                : t.agrees         ? ""
                                                   : "its results differ from the default's";
      if (!wrong.empty() && tools_.warn)
        tools_.warn(fmt::format("tuning drops a plan of {}: {}: {}", job.kernel->name,
                                to_string(job.candidates.schedules[i]), wrong));
    }
    return {};
  }

  Tuning result() const {
    Tuning all;
    std::map<std::string, std::pair<std::vector<TunedPlan>, bool>> plans;
    for (const Job& j : jobs_) {
      all.left += j.timings.empty();
      const size_t best = j.timings.empty() ? 0 : fastest_of(j.timings);
      auto& [own, better] = plans[j.text];
      own.push_back({j.candidates.results, j.candidates.schedules[best]});
      better |= best > 0;
      if (!j.timings.empty()) all.tuned.push_back(describe(j, best));
    }
    for (auto& [text, found] : plans) {
      if (!found.second) continue;
      PlannedKernel planned = *planned_.at(text);
      planned.forms = tuned_forms(planned.forms, std::move(found.first));
      all.plans.emplace(text, std::move(planned));
    }
    return all;
  }
  static TunedKernel describe(const Job& j, size_t best) {
    TunedKernel t{j.kernel->name,
                  text_of(j.candidates.at),
                  to_string(j.candidates.schedules[best]),
                  to_string(j.candidates.schedules[0]),
                  j.timings[best].us,
                  j.timings[0].us,
                  0,
                  j.from_store,
                  {}};
    for (size_t i = 0; i < j.timings.size(); ++i) {
      const Timing& x = j.timings[i];
      t.measured += x.failure.empty();
      const std::string plan = to_string(j.candidates.schedules[i]);
      if (!x.failure.empty()) t.dropped.push_back(plan + ": " + x.failure);
      else if (!x.agrees) t.dropped.push_back(plan + ": its results differ from the default's");
    }
    return t;
  }

  const TuningTools& tools_;
  std::map<std::string, std::unique_ptr<PlannedKernel>> planned_;
  std::vector<Job> jobs_;
};

}  // namespace

Tuning tune_kernels(const std::vector<KernelsAt>& kernels, const TuningTools& tools) {
  return Tuner(kernels, tools).run();
}

runtime::StoreKey tuning_key(const TuningTools& tools, const DimValues& at,
                             const std::vector<EmittedKernel>& candidates) {
  auto version = nvrtc_version();
  runtime::StoreKey key{{{"kind", "tuning"},
                         {"target", fmt::format("{}", fmt::join(tools.targets, ","))},
                         {"device", tools.device},
                         {"nvrtc", version ? *version : "none"},
                         {"options", nvrtc_options()},
                         {"sizes", text_of(at)}}};
  std::string texts;
  for (const EmittedKernel& e : candidates) texts += hash_text(cuda_cache_text(e)).hex() + " ";
  key.fields.emplace_back("candidates", texts);
  return key;
}

Result<runtime::Program> program_of_launch(const Kernel& kernel, const BuiltKernel& built, const DimValues& at,
                                           const std::string& target) {
  runtime::Program p;
  p.target = target;
  p.model_name = kernel.name;
  p.kernels = {built.info};
  const auto line = [&](const Expr& e) -> Result<runtime::ShapeRef> {
    const auto value = evaluate_int(e, at);
    if (!value) return unsupported(fmt::format("{} is not known before the run", to_string(e)));
    p.shapes.lines.push_back({runtime::ShapeOp::Constant, 0, 0, 0, *value});
    return static_cast<runtime::ShapeRef>(p.shapes.lines.size() - 1);
  };
  runtime::Instruction in;
  in.kernel = 0;
  for (const Buffer& b : kernel.buffers) {
    const runtime::ShapeRef count = INGOT_TRY(line(product(b.shape)));
    const runtime::ShapeRef bytes = INGOT_TRY(line(product(b.shape) * static_cast<int64_t>(size_of(b.type))));
    auto& list = b.is_output ? p.outputs : p.inputs;
    in.args.push_back(static_cast<int32_t>(p.values.size()));
    in.first_written += !b.is_output;
    p.values.push_back({b.is_output ? runtime::Place::Output : runtime::Place::Input, static_cast<int32_t>(list.size()),
                        b.type, bytes, b.name});
    list.push_back({b.name, b.type, {count}, b.is_output ? std::vector<int32_t>{} : std::vector<int32_t>{-1}});
  }
  for (const Expr& d : kernel.dims) in.dims.push_back(INGOT_TRY(line(d)));
  for (size_t d = 0; d < 3; ++d) in.grid[d] = INGOT_TRY(line(built.grid[d]));
  in.bytes = INGOT_TRY(line(kernel_bytes(kernel)));
  in.flops = INGOT_TRY(line(kernel_flops(kernel)));
  for (const BoxMap& map : built.boxes) in.boxes.push_back(INGOT_TRY(lower_box(map, line)));
  if (built.part_bytes.valid()) in.part_bytes = INGOT_TRY(line(built.part_bytes));
  p.instructions = {in};
  INGOT_TRY(p.verify());
  return p;
}

DimValues dims_at(const Graph& graph, const TuningPoint& point) {
  DimValues at;
  for (ValueId v : graph.inputs) {
    const Shape& s = graph.value(v).type.shape;
    for (size_t d = 0; d < s.size(); ++d) {
      if (s[d].op() != ExprOp::Symbol) continue;
      const auto named = point.dims.find(s[d].name());
      const int64_t wanted = named != point.dims.end() ? named->second : d == 0 ? point.batch : 64;
      at.emplace(s[d].name(), std::clamp<int64_t>(wanted, s[d].low(), std::max<int64_t>(s[d].high(), 1)));
    }
  }
  for (const DerivedSymbol& d : graph.derived_symbols)
    if (const auto value = evaluate_int(d.definition, at)) at.emplace(d.symbol.name(), *value);
  return at;
}

}  // namespace ingot
