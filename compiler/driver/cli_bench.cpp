// bench: latency, throughput with copies overlapped or with tensors on the device, host cost of an enqueue, the best batch.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "compiler/driver/cli.h"
#include "compiler/driver/cli_profile.h"
#include "runtime/batcher.h"
#include "runtime/pipeline.h"

namespace ingot::cli {
namespace {

using Inputs = std::vector<Tensor>;

double now_ms() { return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

struct BenchArgs {
  CommonOptions common;
  TuneOptions tune;
  std::string model, device, io = "run", graph = "on", csv, trace;
  std::vector<std::string> inputs;
  int64_t batch = 1;
  double duration = 2;
  int streams = 0, depth = 3;
  bool profile = false, json = false, find_batch = false;
  runtime::SessionOptions session() const {
    runtime::SessionOptions o;
    o.lanes = streams == 0 ? runtime::Lanes::WhereTheyHelp : streams == 1 ? runtime::Lanes::Never : runtime::Lanes::Always;
    o.recordings = graph != "off";
    return o;
  }
};

double quantile(const std::vector<double>& sorted, double q) {
  return sorted[std::min(sorted.size() - 1, static_cast<size_t>(q * static_cast<double>(sorted.size())))];
}
nlohmann::json quantiles(std::vector<double> times) {
  std::sort(times.begin(), times.end());
  return {{"p50_ms", quantile(times, 0.5)}, {"p90_ms", quantile(times, 0.9)}, {"p99_ms", quantile(times, 0.99)}, {"runs", times.size()}};
}

/// One request after the other, from host tensors to host tensors; `run` does one.
template <class Run>
Result<nlohmann::json> bench_run(Run run, double seconds) {
  const double first = now_ms();
  INGOT_TRY(run());
  const double first_ms = now_ms() - first;
  for (int i = 0; i < 3; ++i) INGOT_TRY(run());
  std::vector<double> times;
  const double end = now_ms() + seconds * 1000;
  while ((now_ms() < end || times.size() < 5) && times.size() < 100000) {
    const double t = now_ms();
    INGOT_TRY(run());
    times.push_back(now_ms() - t);
  }
  nlohmann::json j = quantiles(std::move(times));
  j["first_ms"] = first_ms;
  j["ms"] = j["p50_ms"];
  return j;
}

/// A queue of requests from host tensors, copies overlapped with compute.
Result<nlohmann::json> bench_pipeline(const std::shared_ptr<const runtime::Engine>& engine, const Inputs& inputs, const BenchArgs& a) {
  const auto pipeline = INGOT_TRY(runtime::Pipeline::create(engine, static_cast<size_t>(a.depth), a.session()));
  const auto depth = static_cast<uint64_t>(a.depth);
  uint64_t sent = 0;
  const auto next = [&]() -> Status {
    if (sent >= depth) INGOT_TRY(pipeline->fetch(sent - depth));
    sent = INGOT_TRY(pipeline->submit(inputs)) + 1;
    return {};
  };
  for (uint64_t i = 0; i < 3 * depth; ++i) INGOT_TRY(next());
  const uint64_t from = sent;
  const double start = now_ms();
  while (now_ms() < start + a.duration * 1000 || sent < from + 5) INGOT_TRY(next());
  const double ms = now_ms() - start;
  for (uint64_t r = sent - depth; r < sent; ++r) INGOT_TRY(pipeline->fetch(r));
  return nlohmann::json{{"ms", ms / static_cast<double>(sent - from)}, {"runs", sent - from}, {"depth", a.depth}};
}

/// Device memory for a request, filled from host tensors.
struct OnDevice {
  std::vector<runtime::DeviceMemory> memory;
  std::vector<runtime::DeviceTensor> inputs;
  std::vector<void*> outputs;
};
Result<OnDevice> to_device(runtime::Session& session, const Inputs& inputs) {
  const auto& device = session.engine()->device();
  OnDevice at;
  const auto reserve = [&](uint64_t bytes) -> Result<void*> {
    void* p = INGOT_TRY(device->allocate(bytes));
    at.memory.emplace_back(device, p, bytes);
    return p;
  };
  std::vector<runtime::Dims> dims;
  for (const Tensor& t : inputs) {
    at.inputs.push_back({INGOT_TRY(reserve(t.bytes())), t.dims()});
    INGOT_TRY(device->copy_to_device(at.inputs.back().data, t.data(), t.bytes(), nullptr));
    dims.push_back(t.dims());
  }
  const auto outputs = INGOT_TRY(session.output_dims(dims));
  for (size_t i = 0; i < outputs.size(); ++i) {
    const DType type = session.engine()->program().outputs[i].type;
    at.outputs.push_back(INGOT_TRY(reserve(static_cast<uint64_t>(INGOT_TRY(checked_count(outputs[i], size_of(type)))) * size_of(type))));
  }
  INGOT_TRY(device->synchronize(nullptr));
  return at;
}

/// Requests on device memory, queued without waiting: device time for each, and what an enqueue costs the host.
Result<nlohmann::json> bench_device(runtime::Session& session, const Inputs& inputs, double seconds) {
  // Requests between two waits. A driver's queue holds about a thousand launches: a host that fills it waits for the device,
  // and that time is no cost of its own.
  constexpr int kMostRequests = 16, kMostLaunches = 512;
  const int launches = std::max(1, static_cast<int>(session.engine()->program().instructions.size()));
  const int queue = std::clamp(kMostLaunches / launches, 1, kMostRequests);
  const OnDevice at = INGOT_TRY(to_device(session, inputs));
  runtime::Device& device = *session.engine()->device();
  const auto start = INGOT_TRY(device.create_event()), stop = INGOT_TRY(device.create_event());
  for (int i = 0; i < 3; ++i) INGOT_TRY(session.enqueue(at.inputs, at.outputs, nullptr));
  INGOT_TRY(session.synchronize());
  std::vector<double> device_ms, host_us;
  const double end = now_ms() + seconds * 1000;
  while (now_ms() < end || device_ms.size() < 5) {
    INGOT_TRY(device.record(*start, session.stream()));
    const double t = now_ms();
    for (int i = 0; i < queue; ++i) INGOT_TRY(session.enqueue(at.inputs, at.outputs, nullptr));
    host_us.push_back((now_ms() - t) * 1000 / queue);
    INGOT_TRY(device.record(*stop, session.stream()));
    INGOT_TRY(session.synchronize());
    device_ms.push_back(INGOT_TRY(device.elapsed_ms(*start, *stop)) / queue);
  }
  std::sort(host_us.begin(), host_us.end());
  nlohmann::json j = quantiles(std::move(device_ms));
  j["ms"] = j["p50_ms"];
  j["host_enqueue_us"] = quantile(host_us, 0.5);
  return j;
}

nlohmann::json counters_json(const runtime::SessionCounters& c) {
  return {{"runs", c.runs}, {"plans_made", c.plans_made}, {"plans_dropped", c.plans_dropped}, {"recordings_made", c.recordings_made},
          {"recordings_dropped", c.recordings_dropped}, {"replays", c.replays}, {"arena_bytes", c.arena_bytes},
          {"arena_growths", c.arena_growths}, {"staging_bytes", c.staging_bytes}, {"last_plan_us", c.last_plan_us}};
}

Outcome find_batch(const Model& m, const BenchArgs& a) {
  const auto speeds = INGOT_TRY(runtime::measure_batches(m.engine(), std::min(a.duration, 0.5)));
  const runtime::BatchSpeed best = runtime::best_batch(speeds);
  if (a.json) {
    nlohmann::json j{{"model", a.model}, {"device", m.device_name()}, {"best_batch", best.batch}};
    for (const auto& s : speeds) j["batches"].push_back({{"batch", s.batch}, {"ms", s.ms}, {"per_second", s.rows_per_second}, {"plan_us", s.plan_us}});
    fmt::print("{}\n", j.dump());
    return 0;
  }
  for (const auto& s : speeds) fmt::print("  batch {:>5}: {:9.3f} ms, {:10.1f} items/s{}\n", s.batch, s.ms, s.rows_per_second, s.batch == best.batch ? "   <- best" : "");
  return 0;
}

void print_bench(const nlohmann::json& j, const std::string& io) {
  fmt::print("{} on {}: batch {}, {} kernels\n", j["model"].get<std::string>(), j["device"].get<std::string>(), j["batch"].get<int64_t>(), j["kernels"].get<size_t>());
  if (io == "host")
    fmt::print("  {:.3f} ms a request from a queue of {}, copies overlapped, over {} requests; {:.1f} items/s\n", j["ms"].get<double>(), j["depth"].get<int>(), j["runs"].get<size_t>(),
               j["per_second"].get<double>());
  else
    fmt::print("  {} p50 {:.3f} ms, p90 {:.3f}, p99 {:.3f} over {} runs; {:.1f} items/s", io == "device" ? "device time" : "latency", j["p50_ms"].get<double>(),
               j["p90_ms"].get<double>(), j["p99_ms"].get<double>(), j["runs"].get<size_t>(), j["per_second"].get<double>());
  if (io == "device") fmt::print("; an enqueue costs the host {:.2f} us\n", j["host_enqueue_us"].get<double>());
  if (io == "run") fmt::print("; load {:.0f} ms, first run {:.2f} ms\n", j["load_ms"].get<double>(), j["first_ms"].get<double>());
}

Outcome run_bench(const BenchArgs& a) {
  const double load_start = now_ms();
  CompileOptions options = INGOT_TRY(a.common.to_compile());
  INGOT_TRY(a.tune.apply(options));
  if (a.tune.at.empty()) options.tune_at = {{a.batch, {}}};
  if (options.tune_seconds && a.model.ends_with(".ingot"))
    return invalid("--tune plans kernels of a model; those of an .ingot file are compiled");
  if (a.device.rfind("cuda:", 0) == 0 && a.tune.device == "cuda:0") options.tune_device = a.device;
  const Model m = INGOT_TRY(Model::load(a.model, a.device, options));
  const double load_ms = now_ms() - load_start;
  const bool want_profile = a.profile || !a.csv.empty() || !a.trace.empty();
  if (!m.engine() && (a.find_batch || want_profile || a.io != "run"))
    return unsupported("the interpreter is only measured from host to host");
  if (a.find_batch) return find_batch(m, a);
  const auto inputs = INGOT_TRY(read_inputs(m.inputs(), m.program(), a.inputs, true, a.batch, 1));
  std::unique_ptr<runtime::Session> session;
  if (m.engine()) session = INGOT_TRY(runtime::Session::create(m.engine(), a.session()));
  const auto one_run = [&] { return session ? session->run(inputs) : m.run_ordered(inputs); };
  nlohmann::json j = a.io == "host"     ? INGOT_TRY(bench_pipeline(m.engine(), inputs, a))
                     : a.io == "device" ? INGOT_TRY(bench_device(*session, inputs, a.duration))
                                        : INGOT_TRY(bench_run(one_run, a.duration));
  const int64_t rows = inputs.empty() || inputs[0].dims().empty() ? 1 : inputs[0].dims()[0];
  j.update({{"model", a.model}, {"device", m.device_name()}, {"io", a.io}, {"batch", rows}, {"load_ms", load_ms},
            {"kernels", steps_of(m.program())}, {"per_second", 1000.0 * static_cast<double>(rows) / j["ms"].get<double>()},
            {"counters", counters_json(session ? session->counters() : runtime::SessionCounters{})}});
  runtime::Profile profile;
  if (want_profile) profile = INGOT_TRY(session->profile(inputs));
  if (!a.csv.empty()) INGOT_TRY(write_profile_csv(profile, m.traits(), a.csv));
  if (!a.trace.empty()) INGOT_TRY(write_chrome_trace(profile, a.trace));
  if (a.json) {
    if (want_profile) j["profile"] = profile_json(profile, m.traits());
    fmt::print("{}\n", j.dump());
    return 0;
  }
  print_bench(j, a.io);
  if (m.compilation()) print_tuning(m.compilation()->tuned);
  if (a.profile) print_profile(profile, m.traits());
  return 0;
}

}  // namespace

std::function<Outcome()> add_bench(CLI::App& app) {
  auto a = std::make_shared<BenchArgs>();
  app.add_option("model", a->model, "MODEL.onnx or FILE.ingot")->required();
  app.add_option("--device", a->device, "cpu, cuda:N; default: a GPU if there is one");
  app.add_option("--input", a->inputs, "NAME=FILE; missing inputs are seeded random");
  app.add_option("--batch", a->batch, "of random inputs");
  app.add_option("--duration", a->duration, "seconds");
  app.add_option("--io", a->io, "run: one request after the other from host memory; host: a queue of them, copies overlapped; device: tensors on the device")
      ->check(CLI::IsMember({"run", "host", "device"}));
  app.add_option("--depth", a->depth, "--io host: requests in flight")->check(CLI::Range(1, 64));
  app.add_option("--streams", a->streams, "1: everything on one stream, whatever the program has lanes for; more: all lanes, whatever they gain");
  app.add_option("--graph", a->graph, "on: CUDA graphs of the session's own")->check(CLI::IsMember({"on", "off"}));
  app.add_flag("--find-batch", a->find_batch, "measures doubling batches and marks the smallest that is nearly the fastest for each item");
  app.add_flag("--profile", a->profile, "time of each kernel");
  app.add_option("--csv", a->csv, "writes the profile to this file");
  app.add_option("--trace", a->trace, "writes the profile for chrome://tracing to this file");
  app.add_flag("--json", a->json, "one JSON object");
  a->common.add(app);
  a->tune.add(app);
  return [a] { return run_bench(*a); };
}

}  // namespace ingot::cli
