// The C API's pipelines, pools, batchers and futures.
#include <fmt/format.h>

#include <cstring>

#include "runtime/c_api.h"

using namespace ingot;
using namespace ingot::runtime;
using namespace ingot::runtime::c_api;

namespace {

/// Tensors with memory of their own, where those of the caller may go before they are used.
std::vector<Tensor> copies_of(const std::vector<Tensor>& tensors) {
  std::vector<Tensor> copies;
  for (const Tensor& t : tensors) {
    copies.emplace_back(t.type(), t.dims());
    if (t.bytes()) std::memcpy(copies.back().mutable_data(), t.data(), t.bytes());
  }
  return copies;
}

}  // namespace

extern "C" {

ingot_status ingot_pipeline_create(ingot_engine* engine, int32_t depth, ingot_pipeline** pipeline) {
  return call([&]() -> Status {
    if (!engine || !pipeline || depth < 1) return invalid("no engine, no place for the pipeline, or a depth below 1");
    auto made = INGOT_TRY(Pipeline::create(engine->engine, static_cast<size_t>(depth)));
    *pipeline = new ingot_pipeline{std::move(made), {}};
    return {};
  });
}
void ingot_pipeline_free(ingot_pipeline* pipeline) { delete pipeline; }
ingot_status ingot_pipeline_submit(ingot_pipeline* pipeline, const ingot_tensor* inputs, int32_t input_count,
                                   uint64_t* request) {
  return call([&]() -> Status {
    if (!pipeline || !request) return null_handle();
    *request = INGOT_TRY(pipeline->pipeline->submit(INGOT_TRY(tensors_from_c(inputs, input_count))));
    return {};
  });
}
ingot_status ingot_pipeline_fetch(ingot_pipeline* pipeline, uint64_t request, ingot_tensor* outputs,
                                  int32_t output_count) {
  return call([&]() -> Status {
    if (!pipeline) return null_handle();
    return give_outputs(INGOT_TRY(pipeline->pipeline->fetch(request)), &pipeline->outputs, outputs, output_count);
  });
}

ingot_status ingot_pool_create(ingot_engine* const* engines, int32_t engine_count, int32_t sessions,
                               ingot_pool** pool) {
  return call([&]() -> Status {
    if (!engines || engine_count < 1 || sessions < 1 || !pool)
      return invalid("no engines, no sessions, or no place for the pool");
    std::vector<std::shared_ptr<const Engine>> list;
    for (int32_t i = 0; i < engine_count; ++i) {
      if (!engines[i]) return null_handle();
      list.push_back(engines[i]->engine);
    }
    auto made = INGOT_TRY(ReplicaPool::create(list, static_cast<size_t>(sessions)));
    *pool = new ingot_pool{std::move(made)};
    return {};
  });
}
void ingot_pool_free(ingot_pool* pool) { delete pool; }
ingot_status ingot_pool_run(ingot_pool* pool, const ingot_tensor* inputs, int32_t input_count, ingot_tensor* outputs,
                            int32_t output_count) {
  return call([&]() -> Status {
    if (!pool) return null_handle();
    return give_outputs(INGOT_TRY(pool->pool->run(INGOT_TRY(tensors_from_c(inputs, input_count)))), nullptr, outputs,
                        output_count);
  });
}
uint64_t ingot_pool_served(const ingot_pool* pool, int32_t replica) {
  if (!pool || replica < 0 || static_cast<size_t>(replica) >= pool->pool->size()) return 0;
  return pool->pool->served()[static_cast<size_t>(replica)];
}

ingot_status ingot_batcher_create(ingot_pool* pool, const ingot_batcher_options* options, ingot_batcher** batcher) {
  return call([&]() -> Status {
    if (!pool || !batcher) return null_handle();
    const auto o = read_options(options);
    BatcherOptions b;
    b.max_batch = o.max_batch;
    if (o.max_delay_ms != 0) b.max_delay_ms = std::max(o.max_delay_ms, 0.0);
    if (o.max_queue > 0) b.max_queue = static_cast<size_t>(o.max_queue);
    auto made = INGOT_TRY(Batcher::create(pool->pool, b));
    *batcher = new ingot_batcher{std::move(made)};
    return {};
  });
}
void ingot_batcher_free(ingot_batcher* batcher) { delete batcher; }
ingot_status ingot_batcher_submit(ingot_batcher* batcher, const ingot_tensor* inputs, int32_t input_count,
                                  ingot_future** future) {
  return call([&]() -> Status {
    if (!batcher || !future) return null_handle();
    const auto tensors = INGOT_TRY(tensors_from_c(inputs, input_count));
    *future = new ingot_future{batcher->batcher->submit(copies_of(tensors)), {}};
    return {};
  });
}
ingot_status ingot_future_wait(ingot_future* future, ingot_tensor* outputs, int32_t output_count) {
  return call([&]() -> Status {
    if (!future) return null_handle();
    if (!future->future.valid()) return invalid("the future has been waited for already");
    return give_outputs(INGOT_TRY(future->future.get()), &future->outputs, outputs, output_count);
  });
}
void ingot_future_free(ingot_future* future) { delete future; }

}  // extern "C"
