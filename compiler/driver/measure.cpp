#include "compiler/driver/measure.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "compiler/support/tensor.h"
#include "runtime/executor.h"

namespace ingot {
namespace {

using Programs = std::vector<std::shared_ptr<const runtime::Program>>;

constexpr double kLeastGain = 0.02;     // of the default's time: less is not worth another plan
constexpr double kCertain = 3;          // times the noise
constexpr uint64_t kCompared = 8 << 20; // bytes of each output that are compared
constexpr int64_t kPattern = 1 << 18;   // elements of random inputs before they repeat

double median(std::vector<double> v) {
  std::sort(v.begin(), v.end());
  return v[v.size() / 2];
}
double noise_of(const std::vector<double>& v) {
  const double middle = median(v);
  std::vector<double> away;
  for (double x : v) away.push_back(std::abs(x - middle));
  return 1.5 * median(std::move(away)) / std::sqrt(static_cast<double>(v.size()));
}

/// What the results of a kind may differ by: different orders of sums, and steps of quantisation.
double tolerance_of(DType type) {
  switch (type) {
    case DType::F32:
    case DType::F64: return 1e-3;
    case DType::F16: return 1e-2;
    case DType::BF16:
    case DType::I8:
    case DType::U8: return 3e-2;
    default: return 0;
  }
}
double element(const Tensor& t, int64_t i) {
  return is_float(t.type()) ? t.float_at(i) : static_cast<double>(t.int_at(i));
}
bool agree(const Tensor& a, const Tensor& b) {
  double off = 0, all = 0;
  for (int64_t i = 0; i < a.count(); ++i) {
    const double x = element(a, i), y = element(b, i);
    if (x == y || (std::isnan(x) && std::isnan(y))) continue;
    if (!std::isfinite(x) || !std::isfinite(y)) return false;
    off += (x - y) * (x - y);
    all += x * x;
  }
  return off == 0 || std::sqrt(off) <= tolerance_of(a.type()) * std::sqrt(all) + 1e-30;
}

/// Copies of the inputs and outputs in device memory, and what runs on them.
class Round {
 public:
  Round(const Programs& programs, std::shared_ptr<runtime::Device> device, const MeasureOptions& options)
      : programs_(programs), device_(std::move(device)), options_(options) {}

  Result<std::vector<Timing>> run(const std::function<void(size_t)>& starting) {
    INGOT_TRY(reserve());
    std::vector<Timing> timings(programs_.size());
    for (size_t i = 0; i < programs_.size(); ++i) {
      starting(i);
      INGOT_TRY(prepare(i, timings[i]));
    }
    INGOT_TRY(sample(timings, starting));
    return timings;
  }

 private:
  struct Runner {
    std::unique_ptr<runtime::Session> session;
    std::unique_ptr<runtime::Recording> recording;  // null: the device does not record
    int launches = 1;
    std::vector<double> us;
  };
  struct Copy {
    std::vector<runtime::DeviceTensor> inputs;
    std::vector<void*> outputs;
  };

  Result<std::vector<runtime::Dims>> dims_of(const std::vector<runtime::Binding>& bindings) const {
    std::vector<int64_t> lines;
    INGOT_TRY(programs_[0]->shapes.evaluate({}, lines));
    std::vector<runtime::Dims> all;
    for (const runtime::Binding& b : bindings) {
      runtime::Dims dims;
      for (runtime::ShapeRef r : b.dims) dims.push_back(lines[static_cast<size_t>(r)]);
      all.push_back(std::move(dims));
    }
    return all;
  }
  static uint64_t bytes_of(DType type, const runtime::Dims& dims) {
    uint64_t bytes = size_of(type);
    for (int64_t d : dims) bytes *= static_cast<uint64_t>(d);
    return bytes;
  }
  Result<void*> place(uint64_t bytes) {
    void* p = INGOT_TRY(device_->allocate(std::max<uint64_t>(bytes, 1)));
    memory_.emplace_back(device_, p, bytes);
    return p;
  }
  Status reserve() {
    const auto inputs = INGOT_TRY(dims_of(programs_[0]->inputs)), outputs = INGOT_TRY(dims_of(programs_[0]->outputs));
    output_dims_ = outputs;
    uint64_t each = 0;
    for (size_t i = 0; i < inputs.size(); ++i) each += bytes_of(programs_[0]->inputs[i].type, inputs[i]);
    for (size_t i = 0; i < outputs.size(); ++i) each += bytes_of(programs_[0]->outputs[i].type, outputs[i]);
    const uint64_t room = device_->memory_info().free_bytes / 2, one = std::max<uint64_t>(each, 1);
    records_ = device_->begin_recording(nullptr).ok();
    if (records_) INGOT_TRY(device_->end_recording(nullptr));
    else options_.samples = std::min(options_.samples, 3), options_.most_copies = 2;
    const auto wanted = std::clamp<uint64_t>(options_.cold_bytes / one + 1, 2, options_.most_copies);
    const uint64_t copies = std::max<uint64_t>(1, std::min<uint64_t>(wanted, room / one));
    for (uint64_t c = 0; c < copies; ++c) {
      Copy copy;
      for (size_t i = 0; i < inputs.size(); ++i) {
        const uint64_t bytes = bytes_of(programs_[0]->inputs[i].type, inputs[i]);
        copy.inputs.push_back({INGOT_TRY(place(bytes)), inputs[i]});
        if (c == 0) INGOT_TRY(fill(copy.inputs[i].data, programs_[0]->inputs[i].type, bytes));
        else INGOT_TRY(device_->copy_on_device(copy.inputs[i].data, copies_[0].inputs[i].data, bytes, nullptr));
      }
      for (size_t i = 0; i < outputs.size(); ++i)
        copy.outputs.push_back(INGOT_TRY(place(bytes_of(programs_[0]->outputs[i].type, outputs[i]))));
      copies_.push_back(std::move(copy));
    }
    return device_->synchronize(nullptr);
  }
  /// Normal numbers; integers of 8 bits at random and others zero: they may be indices.
  Status fill(void* to, DType type, uint64_t bytes) {
    std::mt19937_64 rng(1);
    std::normal_distribution<double> normal;
    const auto count = static_cast<int64_t>(bytes / size_of(type));
    Tensor pattern(type, {std::min(count, kPattern)});
    for (int64_t i = 0; i < pattern.count(); ++i) {
      if (is_float(type)) pattern.set_float(i, normal(rng));
      else pattern.set_int(i, type == DType::I8 || type == DType::U8 ? static_cast<int64_t>(rng() % 100) : 0);
    }
    for (uint64_t done = 0; done < bytes; done += pattern.bytes())
      INGOT_TRY(device_->copy_to_device(static_cast<char*>(to) + done, pattern.data(),
                                        std::min<uint64_t>(pattern.bytes(), bytes - done), nullptr));
    return {};
  }
  /// The first bytes of each output.
  Result<std::vector<Tensor>> results() {
    std::vector<Tensor> all;
    for (size_t i = 0; i < output_dims_.size(); ++i) {
      const DType type = programs_[0]->outputs[i].type;
      const uint64_t bytes = std::min(bytes_of(type, output_dims_[i]), kCompared);
      Tensor t(type, {static_cast<int64_t>(bytes / size_of(type))});
      INGOT_TRY(device_->copy_to_host(t.mutable_data(), copies_[0].outputs[i], t.bytes(), nullptr));
      all.push_back(std::move(t));
    }
    INGOT_TRY(device_->synchronize(nullptr));
    return all;
  }
  Status clear_results() {
    for (size_t i = 0; i < output_dims_.size(); ++i) {
      const DType type = programs_[0]->outputs[i].type;
      const Tensor zeros(type,
                         {static_cast<int64_t>(std::min(bytes_of(type, output_dims_[i]), kCompared) / size_of(type))});
      INGOT_TRY(device_->copy_to_device(copies_[0].outputs[i], zeros.data(), zeros.bytes(), nullptr));
    }
    return device_->synchronize(nullptr);
  }
  Status issue(Runner& r, int launch) {
    const Copy& at = copies_[static_cast<size_t>(launch) % copies_.size()];
    return r.session->enqueue(at.inputs, at.outputs, nullptr);
  }
  /// Loads it, runs it once for its results and a few times for its speed, and records its launches.
  Status prepare(size_t i, Timing& timing) {
    const auto engine = INGOT_TRY(runtime::Engine::create(programs_[i], device_));
    runtime::SessionOptions options;
    options.recordings = false;
    Runner r;
    r.session = INGOT_TRY(runtime::Session::create(engine, options));
    INGOT_TRY(clear_results());
    INGOT_TRY(issue(r, 0));
    INGOT_TRY(r.session->synchronize());
    std::vector<Tensor> results = INGOT_TRY(this->results());
    if (i == 0) expected_ = std::move(results);
    else
      for (size_t o = 0; o < results.size(); ++o) timing.agrees &= agree(expected_[o], results[o]);
    r.launches = 1;
    const double us = INGOT_TRY(time(r));
    const int least = static_cast<int>(copies_.size()), most = 4 * static_cast<int>(options_.most_copies);
    if (i == 0 && records_)
      launches_ =
          std::clamp(static_cast<int>(options_.sample_us / std::max(us, 0.1)) + 1, least, std::max(least, most));
    r.launches = launches_;
    if (records_) {
      INGOT_TRY(device_->begin_recording(r.session->stream()));
      for (int launch = 0; launch < r.launches; ++launch) INGOT_TRY(issue(r, launch));
      r.recording = INGOT_TRY(device_->end_recording(r.session->stream()));
    }
    INGOT_TRY(time(r));
    runners_.push_back(std::move(r));
    return {};
  }
  /// Microseconds of a launch.
  Result<double> time(Runner& r) {
    const auto start = INGOT_TRY(device_->create_event()), stop = INGOT_TRY(device_->create_event());
    runtime::Stream* stream = r.session->stream();
    INGOT_TRY(device_->record(*start, stream));
    if (r.recording) INGOT_TRY(device_->replay(*r.recording, stream));
    else
      for (int launch = 0; launch < r.launches; ++launch) INGOT_TRY(issue(r, launch));
    INGOT_TRY(device_->record(*stop, stream));
    INGOT_TRY(device_->synchronize(stream));
    return INGOT_TRY(device_->elapsed_ms(*start, *stop)) * 1000 / r.launches;
  }
  Status sample(std::vector<Timing>& timings, const std::function<void(size_t)>& starting) {
    for (int s = 0; s < options_.samples; ++s) {
      for (size_t i = 0; i < runners_.size(); ++i) {
        starting(i);
        runners_[i].us.push_back(INGOT_TRY(time(runners_[i])));
      }
    }
    for (size_t i = 0; i < runners_.size(); ++i) {
      std::vector<double> ratios;
      for (size_t s = 0; s < runners_[i].us.size(); ++s)
        ratios.push_back(runners_[i].us[s] / std::max(runners_[0].us[s], 1e-3));
      timings[i].us = median(runners_[i].us);
      timings[i].ratio = median(ratios);
      timings[i].noise = noise_of(ratios);
    }
    return {};
  }

  const Programs& programs_;
  std::shared_ptr<runtime::Device> device_;
  MeasureOptions options_;
  std::vector<runtime::DeviceMemory> memory_;
  std::vector<Copy> copies_;
  std::vector<runtime::Dims> output_dims_;
  std::vector<Tensor> expected_;
  std::vector<Runner> runners_;
  bool records_ = false;
  int launches_ = 1;  // of a sample, the same for all
};

}  // namespace

Result<std::vector<Timing>> measure_in_turns(const Programs& programs, const std::shared_ptr<runtime::Device>& device,
                                             const MeasureOptions& options,
                                             const std::function<void(size_t)>& starting) {
  return Round(programs, device, options).run(starting);
}

size_t fastest_of(const std::vector<Timing>& timings) {
  size_t best = 0;
  for (size_t i = 1; i < timings.size(); ++i) {
    const Timing& t = timings[i];
    if (!t.failure.empty() || !t.agrees || t.ratio + std::max(kLeastGain, kCertain * t.noise) >= 1) continue;
    if (best == 0 || t.ratio < timings[best].ratio) best = i;
  }
  return best;
}

}  // namespace ingot
