// The C API (include/ingot/ingot.h): devices, engines and sessions. Pipelines, pools and batchers are in
// c_api_serving.cpp.
#include "runtime/c_api.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "runtime/cpu/object_loader.h"
#include "runtime/cuda/cuda_device.h"
#include "runtime/engine_file.h"

namespace ingot::runtime::c_api {
namespace {

thread_local std::string last_error;

constexpr struct {
  DType type;
  int32_t number;
} kTypes[] = {{DType::F32, INGOT_F32},
              {DType::U8, INGOT_U8},
              {DType::I8, INGOT_I8},
              {DType::U16, INGOT_U16},
              {DType::I16, INGOT_I16},
              {DType::I32, INGOT_I32},
              {DType::I64, INGOT_I64},
              {DType::Bool, INGOT_BOOL},
              {DType::F16, INGOT_F16},
              {DType::F64, INGOT_F64},
              {DType::U32, INGOT_U32},
              {DType::U64, INGOT_U64},
              {DType::BF16, INGOT_BF16},
              {DType::F8E4M3, INGOT_F8E4M3},
              {DType::F8E4M3FNUZ, INGOT_F8E4M3FNUZ},
              {DType::F8E5M2, INGOT_F8E5M2},
              {DType::F8E5M2FNUZ, INGOT_F8E5M2FNUZ},
              {DType::U4, INGOT_U4},
              {DType::I4, INGOT_I4},
              {DType::F4E2M1, INGOT_F4E2M1},
              {DType::F8E8M0, INGOT_F8E8M0},
              {DType::U2, INGOT_U2},
              {DType::I2, INGOT_I2}};

ingot_status status_of(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::Invalid: return INGOT_INVALID;
    case ErrorKind::Unsupported: return INGOT_UNSUPPORTED;
    case ErrorKind::NotFound: return INGOT_NOT_FOUND;
    case ErrorKind::Io: return INGOT_IO;
    case ErrorKind::OutOfMemory: return INGOT_OUT_OF_MEMORY;
    case ErrorKind::Device: return INGOT_DEVICE;
    case ErrorKind::Internal: return INGOT_INTERNAL;
  }
  return INGOT_INTERNAL;
}

Status check_list(const ingot_tensor* tensors, int32_t count) {
  if (count < 0 || (count > 0 && !tensors)) return invalid("no tensors given");
  for (int32_t i = 0; i < count; ++i)
    if (tensors[i].rank < 0 || tensors[i].rank > INGOT_MAX_RANK)
      return invalid(fmt::format("tensor {} has rank {}", i, tensors[i].rank));
  return {};
}

Result<std::shared_ptr<Device>> open_gpu(int ordinal) {
  return open_cuda_device(*INGOT_TRY(cuda::load_driver()), ordinal);
}
std::shared_ptr<Device> open_cpu(int threads) { return std::make_shared<CpuDevice>(object_loader(), threads); }

/// The number behind the colon of "cuda:1". Error: something else than a number.
Result<int> number_after_colon(const std::string& name, int otherwise) {
  const size_t colon = name.find(':');
  if (colon == std::string::npos) return otherwise;
  const std::string digits = name.substr(colon + 1);
  if (digits.empty() || digits.size() > 4 || digits.find_first_not_of("0123456789") != std::string::npos)
    return invalid(fmt::format("'{}' is not a device: cpu, cpu:THREADS, cuda or cuda:NUMBER", name));
  return std::stoi(digits);
}

Result<std::shared_ptr<Device>> open_device(const std::string& name) {
  if (name.empty()) {
    auto gpu = ingot_gpu_count() > 0 ? open_gpu(0) : Result<std::shared_ptr<Device>>(unsupported("no GPU"));
    return gpu ? std::move(gpu) : Result<std::shared_ptr<Device>>(open_cpu(0));
  }
  const std::string kind = name.substr(0, name.find(':'));
  const int number = INGOT_TRY(number_after_colon(name, 0));
  if (kind == "cpu") return open_cpu(number);
  if (kind == "cuda") return open_gpu(number);
  return invalid(fmt::format("'{}' is not a device: cpu, cpu:THREADS, cuda or cuda:NUMBER", name));
}

ingot_binding describe_binding(const Program& p, const Binding& b) {
  ingot_binding out{};
  out.name = b.name.c_str();
  out.type = to_c(b.type);
  out.rank = static_cast<int32_t>(std::min<size_t>(b.dims.size(), INGOT_MAX_RANK));
  for (int32_t d = 0; d < out.rank; ++d) {
    const ShapeLine& line = p.shapes.lines[static_cast<size_t>(b.dims[static_cast<size_t>(d)])];
    out.dims[d] = line.op == ShapeOp::Constant ? line.immediate : -1;
    out.low[d] = out.high[d] = out.dims[d];
    if (line.op == ShapeOp::Constant) continue;
    out.low[d] = 0, out.high[d] = INT64_MAX;
    if (line.op == ShapeOp::Symbol) {
      const SymbolInfo& s = p.symbols[static_cast<size_t>(line.a)];
      out.low[d] = s.low, out.high[d] = s.high;
    }
  }
  return out;
}

Status give_binding(const ingot_engine* engine, int32_t index, ingot_binding* binding, bool input) {
  if (!engine || !binding) return null_handle();
  const Program& p = engine->engine->program();
  const auto& list = input ? p.inputs : p.outputs;
  if (index < 0 || static_cast<size_t>(index) >= list.size())
    return invalid(fmt::format("there is no {} number {}", input ? "input" : "output", index));
  write_struct(binding, describe_binding(p, list[static_cast<size_t>(index)]));
  return {};
}

SessionOptions options_from_c(const ingot_session_options* given) {
  const auto o = read_options(given);
  SessionOptions options;
  options.lanes = o.no_lanes ? Lanes::Never : Lanes::WhereTheyHelp;
  options.recordings = !o.no_recordings;
  if (o.max_plans > 0) options.max_plans = static_cast<size_t>(o.max_plans);
  if (o.max_recordings > 0) options.max_recordings = static_cast<size_t>(o.max_recordings);
  if (o.max_arena_bytes > 0) options.max_arena_bytes = o.max_arena_bytes;
  options.synchronous = o.synchronous;
  return options;
}

Status enqueue(Session& session, const ingot_tensor* inputs, int32_t input_count, const ingot_tensor* outputs,
               int32_t output_count, void* native) {
  INGOT_TRY(check_list(outputs, output_count));
  std::vector<Tensor> in = INGOT_TRY(tensors_from_c(inputs, input_count));
  INGOT_TRY(session.check_types(in));
  std::vector<DeviceTensor> tensors;
  for (Tensor& t : in) tensors.push_back({t.mutable_data(), t.dims()});
  std::unique_ptr<Stream> borrowed;
  if (native) borrowed = INGOT_TRY(session.engine()->device()->borrow_stream(native));
  const auto dims = INGOT_TRY(session.output_dims(tensors, borrowed.get()));
  std::vector<void*> pointers;
  for (size_t i = 0; i < std::min(static_cast<size_t>(output_count), dims.size()); ++i) {
    const DType type = session.engine()->program().outputs[i].type;
    const auto bytes = static_cast<uint64_t>(INGOT_TRY(checked_count(dims[i], size_of(type)))) * size_of(type);
    if (outputs[i].bytes < bytes || (bytes > 0 && !outputs[i].data))
      return invalid(fmt::format("output {} needs {} bytes, {} given", i, bytes, outputs[i].bytes));
    pointers.push_back(outputs[i].data);
  }
  return session.enqueue(tensors, pointers, borrowed.get());
}

}  // namespace

ingot_status fail(const Error& error) {
  last_error = error.to_string();
  return status_of(error.kind);
}
ingot_status done() {
  last_error.clear();
  return INGOT_OK;
}

int32_t to_c(DType type) {
  for (const auto& row : kTypes)
    if (row.type == type) return row.number;
  return 0;
}
Result<DType> from_c(int32_t type) {
  for (const auto& row : kTypes)
    if (row.number == type) return row.type;
  return invalid(fmt::format("{} is no element type", type));
}

Result<std::vector<Tensor>> tensors_from_c(const ingot_tensor* tensors, int32_t count) {
  const std::vector<Dims> dims = INGOT_TRY(dims_from_c(tensors, count));
  std::vector<Tensor> out;
  for (int32_t i = 0; i < count; ++i) {
    const DType type = INGOT_TRY(from_c(tensors[i].type));
    const auto items = static_cast<uint64_t>(INGOT_TRY(checked_count(dims[static_cast<size_t>(i)], size_of(type))));
    if (tensors[i].bytes < items * size_of(type) || (items > 0 && !tensors[i].data))
      return invalid(fmt::format("tensor {} {} needs {} bytes, {} given", i,
                                 describe(type, dims[static_cast<size_t>(i)]), items * size_of(type),
                                 tensors[i].data ? tensors[i].bytes : 0));
    static constexpr uint64_t kNothing[8] = {};
    out.emplace_back(type, dims[static_cast<size_t>(i)], nullptr, tensors[i].data ? tensors[i].data : kNothing);
  }
  return out;
}

Result<std::vector<Dims>> dims_from_c(const ingot_tensor* tensors, int32_t count) {
  INGOT_TRY(check_list(tensors, count));
  std::vector<Dims> out;
  for (int32_t i = 0; i < count; ++i) out.emplace_back(tensors[i].dims, tensors[i].dims + tensors[i].rank);
  return out;
}

void describe_tensor(ingot_tensor& out, DType type, const Dims& dims) {
  out.type = to_c(type);
  out.rank = static_cast<int32_t>(std::min<size_t>(dims.size(), INGOT_MAX_RANK));
  std::copy_n(dims.begin(), static_cast<size_t>(out.rank), out.dims);
  out.bytes = size_of(type);
  for (int64_t d : dims) out.bytes *= static_cast<uint64_t>(d);
}

Status give_outputs(std::vector<Tensor> results, std::vector<Tensor>* keeper, ingot_tensor* outputs, int32_t count) {
  if (count < 0 || static_cast<size_t>(count) != results.size() || (count > 0 && !outputs))
    return invalid(fmt::format("{} outputs given, the model has {}", count, results.size()));
  // What an earlier call lent ends now: a caller that hands it in again gets new memory.
  for (size_t i = 0; keeper && i < keeper->size() && i < results.size(); ++i)
    if (outputs[i].data == (*keeper)[i].data()) outputs[i].data = nullptr;
  for (size_t i = 0; i < results.size(); ++i) {
    if (results[i].dims().size() > INGOT_MAX_RANK)
      return unsupported(fmt::format("output {} has rank {}", i, results[i].dims().size()));
    if (!outputs[i].data && !keeper) return invalid(fmt::format("output {} has no memory", i));
    if (outputs[i].data && outputs[i].bytes < results[i].bytes())
      return invalid(fmt::format("output {} needs {} bytes, {} given", i, results[i].bytes(), outputs[i].bytes));
  }
  for (size_t i = 0; i < results.size(); ++i) {
    if (!outputs[i].data) outputs[i].data = results[i].mutable_data();
    else if (results[i].bytes()) std::memcpy(outputs[i].data, results[i].data(), results[i].bytes());
    describe_tensor(outputs[i], results[i].type(), results[i].dims());
  }
  if (keeper) *keeper = std::move(results);
  return {};
}

}  // namespace ingot::runtime::c_api

using namespace ingot;
using namespace ingot::runtime;
using namespace ingot::runtime::c_api;

extern "C" {

uint32_t ingot_api_version(void) { return INGOT_API_VERSION; }
const char* ingot_version(void) { return INGOT_VERSION; }
const char* ingot_last_error(void) { return last_error.c_str(); }

ingot_status ingot_device_open(const char* name, ingot_device** device) {
  return call([&]() -> Status {
    if (!device) return null_handle();
    auto opened = INGOT_TRY(open_device(name ? name : ""));
    const std::string text = opened->name();
    *device = new ingot_device{std::move(opened), text};
    return {};
  });
}
void ingot_device_free(ingot_device* device) { delete device; }
const char* ingot_device_name(const ingot_device* device) { return device ? device->name.c_str() : ""; }
int32_t ingot_gpu_count(void) {
  auto api = cuda::load_driver();
  auto gpus = api ? list_cuda_devices(**api) : Result<std::vector<CudaDeviceInfo>>(api.error());
  return gpus ? static_cast<int32_t>(gpus->size()) : 0;
}
ingot_status ingot_host_alloc(ingot_device* device, uint64_t bytes, void** memory) {
  return call([&]() -> Status {
    if (!device || !memory) return null_handle();
    *memory = INGOT_TRY(device->device->allocate_host(bytes));
    return {};
  });
}
void ingot_host_free(ingot_device* device, void* memory) {
  if (device && memory) device->device->release_host(memory);
}

ingot_status ingot_engine_load(const char* path, ingot_device* device, const ingot_load_options* options,
                               ingot_engine** engine) {
  return call([&]() -> Status {
    if (!path || !device || !engine) return null_handle();
    const auto o = read_options(options);
    LoadOptions load;
    load.trust_host_code = o.trust_host_code;
    load.check_weights = !o.skip_weight_check;
    load.device = device->device.get();
    const EngineFile file = INGOT_TRY(load_engine(path, load));
    auto program = INGOT_TRY(program_for(file, *device->device));
    auto made = INGOT_TRY(Engine::create(std::move(program), device->device));
    *engine = new ingot_engine{std::move(made)};
    return {};
  });
}
void ingot_engine_free(ingot_engine* engine) { delete engine; }
int32_t ingot_engine_input_count(const ingot_engine* engine) {
  return engine ? static_cast<int32_t>(engine->engine->program().inputs.size()) : 0;
}
int32_t ingot_engine_output_count(const ingot_engine* engine) {
  return engine ? static_cast<int32_t>(engine->engine->program().outputs.size()) : 0;
}
ingot_status ingot_engine_input(const ingot_engine* engine, int32_t index, ingot_binding* binding) {
  return call([&] { return give_binding(engine, index, binding, true); });
}
ingot_status ingot_engine_output(const ingot_engine* engine, int32_t index, ingot_binding* binding) {
  return call([&] { return give_binding(engine, index, binding, false); });
}
uint64_t ingot_engine_weight_bytes(const ingot_engine* engine) { return engine ? engine->engine->weight_bytes() : 0; }

ingot_status ingot_session_create(ingot_engine* engine, const ingot_session_options* options, ingot_session** session) {
  return call([&]() -> Status {
    if (!engine || !session) return null_handle();
    auto made = INGOT_TRY(Session::create(engine->engine, options_from_c(options)));
    *session = new ingot_session{std::move(made), {}};
    return {};
  });
}
void ingot_session_free(ingot_session* session) { delete session; }

ingot_status ingot_session_run(ingot_session* session, const ingot_tensor* inputs, int32_t input_count,
                               ingot_tensor* outputs, int32_t output_count) {
  return call([&]() -> Status {
    if (!session) return null_handle();
    const auto in = INGOT_TRY(tensors_from_c(inputs, input_count));
    auto results = INGOT_TRY(session->session->run(in));
    return give_outputs(std::move(results), &session->outputs, outputs, output_count);
  });
}

ingot_status ingot_session_output_dims(ingot_session* session, const ingot_tensor* inputs, int32_t input_count,
                                       ingot_tensor* outputs, int32_t output_count) {
  return call([&]() -> Status {
    if (!session || (output_count > 0 && !outputs)) return null_handle();
    const auto in = INGOT_TRY(dims_from_c(inputs, input_count));
    const auto dims = INGOT_TRY(session->session->output_dims(in));
    if (output_count < 0 || static_cast<size_t>(output_count) != dims.size())
      return invalid(fmt::format("{} outputs given, the model has {}", output_count, dims.size()));
    for (size_t i = 0; i < dims.size(); ++i)
      describe_tensor(outputs[i], session->session->engine()->program().outputs[i].type, dims[i]);
    return {};
  });
}

ingot_status ingot_session_enqueue(ingot_session* session, const ingot_tensor* inputs, int32_t input_count,
                                   const ingot_tensor* outputs, int32_t output_count, void* stream) {
  return call([&]() -> Status {
    if (!session) return null_handle();
    return enqueue(*session->session, inputs, input_count, outputs, output_count, stream);
  });
}
ingot_status ingot_session_synchronize(ingot_session* session) {
  return call([&]() -> Status {
    if (!session) return null_handle();
    return session->session->synchronize();
  });
}
void ingot_session_cancel(ingot_session* session) {
  if (session) session->session->cancel();
}
ingot_status ingot_session_trim(ingot_session* session) {
  return call([&]() -> Status {
    if (!session) return null_handle();
    session->outputs.clear();
    return session->session->trim();
  });
}
ingot_status ingot_session_counters(const ingot_session* session, ingot_counters* counters) {
  return call([&]() -> Status {
    if (!session || !counters) return null_handle();
    const SessionCounters c = session->session->counters();
    write_struct(counters,
                 ingot_counters{0, c.runs, c.plans_made, c.plans_dropped, c.recordings_made, c.recordings_dropped,
                                c.replays, c.arena_bytes, c.arena_growths, c.staging_bytes, c.last_plan_us});
    return {};
  });
}

}  // extern "C"
