// What the files of the C API share: the handles' contents, errors and conversion of tensors.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "runtime/batcher.h"
#include "runtime/include/ingot/ingot.h"
#include "runtime/pipeline.h"

struct ingot_device {
  std::shared_ptr<ingot::runtime::Device> device;
  std::string name;
};
struct ingot_engine {
  std::shared_ptr<const ingot::runtime::Engine> engine;
};
struct ingot_session {
  std::unique_ptr<ingot::runtime::Session> session;
  std::vector<ingot::Tensor> outputs;  // of the last run, for callers that gave no memory
};
struct ingot_pipeline {
  std::unique_ptr<ingot::runtime::Pipeline> pipeline;
  std::vector<ingot::Tensor> outputs;
};
struct ingot_pool {
  std::shared_ptr<ingot::runtime::ReplicaPool> pool;
};
struct ingot_batcher {
  std::unique_ptr<ingot::runtime::Batcher> batcher;
};
struct ingot_future {
  std::future<ingot::Result<std::vector<ingot::Tensor>>> future;
  std::vector<ingot::Tensor> outputs;
};

namespace ingot::runtime::c_api {

/// Remembers the error for ingot_last_error; gives its status.
ingot_status fail(const Error& error);
ingot_status done();
/// Runs `body`, which gives a Status, and makes a status of it.
template <class F>
ingot_status call(F body) {
  const Status status = body();
  return status ? done() : fail(status.error());
}
inline Error null_handle() { return invalid("a null handle"); }

int32_t to_c(DType type);
Result<DType> from_c(int32_t type);

/// Tensors over the caller's memory. Errors: null data, a rank out of range, fewer bytes than the dims need.
Result<std::vector<Tensor>> tensors_from_c(const ingot_tensor* tensors, int32_t count);
Result<std::vector<Dims>> dims_from_c(const ingot_tensor* tensors, int32_t count);
/// Copies to memory that the caller gave, or lends that of `results`, which `keeper` then holds.
Status give_outputs(std::vector<Tensor> results, std::vector<Tensor>* keeper, ingot_tensor* outputs, int32_t count);
void describe_tensor(ingot_tensor& out, DType type, const Dims& dims);

/// The caller's options, as far as the caller's version has them; zeros where it gave none.
template <class T>
T read_options(const T* given) {
  T options{};
  if (given) std::memcpy(&options, given, std::min(given->size, sizeof(T)));
  return options;
}
/// Fills a growing structure as far as the caller's version has it.
template <class T>
void write_struct(T* to, T from) {
  from.size = std::min(to->size, sizeof(T));
  std::memcpy(to, &from, from.size);
}

}  // namespace ingot::runtime::c_api
