// Ingot's runtime in C++17: owners for the C API's handles, and results that hold a value or an error. Header only, over
// ingot.h, so that it follows the C API's ABI; the same rules on threads and lifetimes hold.
#ifndef INGOT_INGOT_HPP
#define INGOT_INGOT_HPP

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "ingot/ingot.h"

namespace ingot::api {

struct Error {
  ingot_status status = INGOT_OK;
  std::string message;
};

/// A value, or the error that kept it from being made. value() of an error ends the program with its message.
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}
  explicit operator bool() const { return state_.index() == 0; }
  const Error& error() const { return std::get<1>(state_); }
  T& value() & { return checked(); }
  T value() && { return std::move(checked()); }
  T* operator->() { return &checked(); }
  T& operator*() & { return checked(); }

 private:
  T& checked() {
    if (state_.index() != 0) {
      std::fprintf(stderr, "%s\n", error().message.c_str());
      std::abort();
    }
    return std::get<0>(state_);
  }
  std::variant<T, Error> state_;
};
struct Nothing {};
using Status = Result<Nothing>;

inline Status to_status(ingot_status status) {
  if (status == INGOT_OK) return Nothing{};
  return Error{status, ingot_last_error()};
}

namespace detail {
template <class T, void (*release)(T*)>
struct Release {
  void operator()(T* p) const { release(p); }
};
template <class T, void (*release)(T*)>
using Handle = std::unique_ptr<T, Release<T, release>>;

template <ingot_type kType>
struct TypeIs {
  static constexpr ingot_type value = kType;
};
template <class T>
struct TypeOf;
template <>
struct TypeOf<float> : TypeIs<INGOT_F32> {};
template <>
struct TypeOf<double> : TypeIs<INGOT_F64> {};
template <>
struct TypeOf<int8_t> : TypeIs<INGOT_I8> {};
template <>
struct TypeOf<uint8_t> : TypeIs<INGOT_U8> {};
template <>
struct TypeOf<int16_t> : TypeIs<INGOT_I16> {};
template <>
struct TypeOf<uint16_t> : TypeIs<INGOT_U16> {};
template <>
struct TypeOf<int32_t> : TypeIs<INGOT_I32> {};
template <>
struct TypeOf<uint32_t> : TypeIs<INGOT_U32> {};
template <>
struct TypeOf<int64_t> : TypeIs<INGOT_I64> {};
template <>
struct TypeOf<uint64_t> : TypeIs<INGOT_U64> {};
template <>
struct TypeOf<bool> : TypeIs<INGOT_BOOL> {};
}  // namespace detail

/// A tensor that someone else owns; dims and bytes must agree.
template <class T>
ingot_tensor view(T* data, const std::vector<int64_t>& dims) {
  ingot_tensor t{};
  t.data = const_cast<std::remove_const_t<T>*>(data);
  t.type = detail::TypeOf<std::remove_const_t<T>>::value;
  t.bytes = sizeof(T);
  for (int64_t d : dims) t.bytes *= static_cast<uint64_t>(d);
  t.rank = static_cast<int32_t>(dims.size());
  for (size_t i = 0; i < dims.size() && i < INGOT_MAX_RANK; ++i) t.dims[i] = dims[i];
  return t;
}

class Device {
 public:
  /// "cpu", "cpu:4", "cuda:0"; "" is the first GPU if there is one, else the CPU.
  static Result<Device> open(const std::string& name = "") {
    ingot_device* d = nullptr;
    if (ingot_device_open(name.c_str(), &d) != INGOT_OK) return Error{INGOT_DEVICE, ingot_last_error()};
    return Device(d);
  }
  std::string name() const { return ingot_device_name(get()); }
  ingot_device* get() const { return handle_.get(); }

 private:
  explicit Device(ingot_device* d) : handle_(d) {}
  detail::Handle<ingot_device, ingot_device_free> handle_;
};

class Engine {
 public:
  static Result<Engine> load(const std::string& path, const Device& device, bool trust_host_code = false) {
    ingot_load_options options = INGOT_INIT(ingot_load_options);
    options.trust_host_code = trust_host_code;
    ingot_engine* e = nullptr;
    const ingot_status status = ingot_engine_load(path.c_str(), device.get(), &options, &e);
    if (status != INGOT_OK) return Error{status, ingot_last_error()};
    return Engine(e);
  }
  std::vector<ingot_binding> inputs() const { return bindings(ingot_engine_input_count(get()), ingot_engine_input); }
  std::vector<ingot_binding> outputs() const { return bindings(ingot_engine_output_count(get()), ingot_engine_output); }
  uint64_t weight_bytes() const { return ingot_engine_weight_bytes(get()); }
  ingot_engine* get() const { return handle_.get(); }

 private:
  explicit Engine(ingot_engine* e) : handle_(e) {}
  template <class F>
  std::vector<ingot_binding> bindings(int32_t count, F one) const {
    std::vector<ingot_binding> list;
    for (int32_t i = 0; i < count; ++i) {
      ingot_binding b = INGOT_INIT(ingot_binding);
      if (one(get(), i, &b) == INGOT_OK) list.push_back(b);
    }
    return list;
  }
  detail::Handle<ingot_engine, ingot_engine_free> handle_;
};

class Session {
 public:
  static Result<Session> create(const Engine& engine, const ingot_session_options* options = nullptr) {
    ingot_session* s = nullptr;
    const ingot_status status = ingot_session_create(engine.get(), options, &s);
    if (status != INGOT_OK) return Error{status, ingot_last_error()};
    return Session(s, static_cast<size_t>(ingot_engine_output_count(engine.get())));
  }
  /// The outputs lie in memory of the session, valid until its next call.
  Result<std::vector<ingot_tensor>> run(const std::vector<ingot_tensor>& inputs) {
    std::vector<ingot_tensor> out(outputs_, ingot_tensor{});
    const ingot_status status = ingot_session_run(get(), inputs.data(), static_cast<int32_t>(inputs.size()), out.data(),
                                                  static_cast<int32_t>(out.size()));
    if (status != INGOT_OK) return Error{status, ingot_last_error()};
    return out;
  }
  /// Asynchronous, on device memory; `stream` is a CUstream or cudaStream_t.
  Status enqueue(const std::vector<ingot_tensor>& inputs, const std::vector<ingot_tensor>& outputs, void* stream) {
    return to_status(ingot_session_enqueue(get(), inputs.data(), static_cast<int32_t>(inputs.size()), outputs.data(),
                                           static_cast<int32_t>(outputs.size()), stream));
  }
  Status synchronize() { return to_status(ingot_session_synchronize(get())); }
  Status trim() { return to_status(ingot_session_trim(get())); }
  void cancel() { ingot_session_cancel(get()); }
  ingot_counters counters() const {
    ingot_counters c = INGOT_INIT(ingot_counters);
    ingot_session_counters(get(), &c);
    return c;
  }
  ingot_session* get() const { return handle_.get(); }

 private:
  Session(ingot_session* s, size_t outputs) : handle_(s), outputs_(outputs) {}
  detail::Handle<ingot_session, ingot_session_free> handle_;
  size_t outputs_;
};

/// A queue of requests whose copies overlap with compute.
class Pipeline {
 public:
  static Result<Pipeline> create(const Engine& engine, int depth = 3) {
    ingot_pipeline* p = nullptr;
    const ingot_status status = ingot_pipeline_create(engine.get(), depth, &p);
    if (status != INGOT_OK) return Error{status, ingot_last_error()};
    return Pipeline(p, static_cast<size_t>(ingot_engine_output_count(engine.get())));
  }
  Result<uint64_t> submit(const std::vector<ingot_tensor>& inputs) {
    uint64_t request = 0;
    const ingot_status status =
        ingot_pipeline_submit(handle_.get(), inputs.data(), static_cast<int32_t>(inputs.size()), &request);
    if (status != INGOT_OK) return Error{status, ingot_last_error()};
    return request;
  }
  /// The outputs lie in memory of the pipeline, valid until the next fetch.
  Result<std::vector<ingot_tensor>> fetch(uint64_t request) {
    std::vector<ingot_tensor> out(outputs_, ingot_tensor{});
    const ingot_status status =
        ingot_pipeline_fetch(handle_.get(), request, out.data(), static_cast<int32_t>(out.size()));
    if (status != INGOT_OK) return Error{status, ingot_last_error()};
    return out;
  }

 private:
  Pipeline(ingot_pipeline* p, size_t outputs) : handle_(p), outputs_(outputs) {}
  detail::Handle<ingot_pipeline, ingot_pipeline_free> handle_;
  size_t outputs_;
};

/// One model on several devices; requests go to the one with the fewest in progress.
class Pool {
 public:
  static Result<Pool> create(const std::vector<Engine>& engines, int sessions = 2) {
    std::vector<ingot_engine*> list;
    for (const Engine& e : engines) list.push_back(e.get());
    ingot_pool* p = nullptr;
    const ingot_status status = ingot_pool_create(list.data(), static_cast<int32_t>(list.size()), sessions, &p);
    if (status != INGOT_OK) return Error{status, ingot_last_error()};
    return Pool(p, static_cast<size_t>(ingot_engine_output_count(list[0])));
  }
  /// The outputs' data must be given.
  Status run(const std::vector<ingot_tensor>& inputs, std::vector<ingot_tensor>& outputs) {
    return to_status(ingot_pool_run(get(), inputs.data(), static_cast<int32_t>(inputs.size()), outputs.data(),
                                    static_cast<int32_t>(outputs.size())));
  }
  uint64_t served(int replica) const { return ingot_pool_served(get(), replica); }
  size_t outputs() const { return outputs_; }
  ingot_pool* get() const { return handle_.get(); }

 private:
  Pool(ingot_pool* p, size_t outputs) : handle_(p), outputs_(outputs) {}
  detail::Handle<ingot_pool, ingot_pool_free> handle_;
  size_t outputs_;
};

/// The answer to a batcher's request; its outputs live as long as it does.
class Future {
 public:
  Future(ingot_future* f, size_t outputs) : handle_(f), outputs_(outputs) {}
  Result<std::vector<ingot_tensor>> wait() {
    std::vector<ingot_tensor> out(outputs_, ingot_tensor{});
    const ingot_status status = ingot_future_wait(handle_.get(), out.data(), static_cast<int32_t>(out.size()));
    if (status != INGOT_OK) return Error{status, ingot_last_error()};
    return out;
  }

 private:
  detail::Handle<ingot_future, ingot_future_free> handle_;
  size_t outputs_;
};

/// Gathers requests of many threads to batches.
class Batcher {
 public:
  static Result<Batcher> create(const Pool& pool, int64_t max_batch = 0, double max_delay_ms = 2) {
    ingot_batcher_options options = INGOT_INIT(ingot_batcher_options);
    options.max_batch = max_batch;
    options.max_delay_ms = max_delay_ms > 0 ? max_delay_ms : -1;
    ingot_batcher* b = nullptr;
    const ingot_status status = ingot_batcher_create(pool.get(), &options, &b);
    if (status != INGOT_OK) return Error{status, ingot_last_error()};
    return Batcher(b, pool.outputs());
  }
  /// The inputs are copied; their first dimension is the rows.
  Result<Future> submit(const std::vector<ingot_tensor>& inputs) {
    ingot_future* f = nullptr;
    const ingot_status status =
        ingot_batcher_submit(handle_.get(), inputs.data(), static_cast<int32_t>(inputs.size()), &f);
    if (status != INGOT_OK) return Error{status, ingot_last_error()};
    return Future(f, outputs_);
  }

 private:
  Batcher(ingot_batcher* b, size_t outputs) : handle_(b), outputs_(outputs) {}
  detail::Handle<ingot_batcher, ingot_batcher_free> handle_;
  size_t outputs_;
};

}  // namespace ingot::api

#endif
