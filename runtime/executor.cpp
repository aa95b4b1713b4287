// Session: what a caller may ask of it. Planning, memory and launching are in session_plan.cpp, session_memory.cpp and
// session_issue.cpp.
#include "runtime/executor.h"

#include <fmt/format.h>

#include <cstdlib>
#include <cstring>

#include "runtime/memory.h"
#include "runtime/nvtx.h"

namespace ingot::runtime {

Session::Session(std::shared_ptr<const Engine> engine, SessionOptions options)
    : engine_(std::move(engine)), options_(options) {
  const Program& p = engine_->program();
  input_memory_.resize(p.inputs.size());
  output_memory_.resize(p.outputs.size());
  values_.resize(p.values.size());
  const char* text = std::getenv("INGOT_SYNC_LAUNCHES");
  options_.synchronous |= text && std::strcmp(text, "1") == 0;
}

Session::~Session() {
  if (stream_) static_cast<void>(synchronize());  // launches in flight use the memory that goes now
}

Result<std::unique_ptr<Session>> Session::create(std::shared_ptr<const Engine> engine, SessionOptions options) {
  std::unique_ptr<Session> session(new Session(std::move(engine), options));
  session->stream_ = INGOT_TRY(session->engine_->device()->create_stream());
  INGOT_TRY(session->reserve(session->empty_, kMemoryAlignment, "a session"));
  for (const auto& part : session->engine_->parts())
    session->parts_.push_back(INGOT_TRY(create(part, session->options_)));
  return session;
}

Status Session::synchronize() {
  Status status = engine_->device()->synchronize(stream_.get());
  if (!status && !options_.synchronous)
    status.error().add(fmt::format("in a run of '{}'; INGOT_SYNC_LAUNCHES=1 names the kernel and its nodes", engine_->program().model_name));
  return status;
}

Result<std::vector<Tensor>> Session::run(const std::vector<Tensor>& inputs) {
  const NvtxRange range(engine_->program().model_name);
  cancelled_ = false;
  if (!engine_->program().scripts.empty()) return run_parts(inputs);
  std::vector<Tensor> outputs;
  Addresses at;
  Plan* plan = INGOT_TRY(stage_inputs(inputs, outputs, at));
  INGOT_TRY(issue_at(*plan, at, stream_.get()));
  INGOT_TRY(fetch_outputs(outputs));
  return outputs;
}

namespace {
Error in_parts(const char* what) {
  return unsupported(
      fmt::format("{} of a model whose course is decided at run time: it has to look at results on the way", what));
}
}  // namespace

Result<std::vector<Dims>> Session::output_dims(const std::vector<Dims>& input_dims) {
  if (!engine_->program().scripts.empty()) return in_parts("the output dims");
  if (needs_input_values(engine_->program()))
    return unsupported("the sizes of the outputs follow from elements of inputs, not from dims alone");
  return INGOT_TRY(plan_for(input_dims))->output_dims;
}

Status Session::enqueue(std::span<const DeviceTensor> inputs, std::span<void* const> outputs, Stream* stream) {
  const size_t wanted = engine_->program().outputs.size();
  if (outputs.size() != wanted)
    return invalid(fmt::format("{} output pointers given, the model has {} outputs", outputs.size(), wanted));
  if (!engine_->program().scripts.empty()) return in_parts("an asynchronous run");
  cancelled_ = false;
  std::vector<Dims> dims;
  Addresses at;
  for (const DeviceTensor& t : inputs) {
    dims.push_back(t.dims);
    at.inputs.push_back(t.data);
  }
  at.outputs.assign(outputs.begin(), outputs.end());
  if (!engine_->device()->is_host())  // kernels read and write 16 bytes at a time
    for (const auto* list : {&at.inputs, &at.outputs})
      for (const void* p : *list)
        if (reinterpret_cast<uintptr_t>(p) % 16 != 0) return invalid("a device pointer is not aligned to 16 bytes");
  Stream* const on = stream ? stream : stream_.get();
  if (stream && needs_input_values(engine_->program()) && engine_->device()->is_recording(stream))
    return unsupported("sizes follow from elements of inputs, which cannot be read while the stream is being captured");
  INGOT_TRY(read_values(inputs, on));
  Plan* plan = INGOT_TRY(plan_for(dims));
  if (plan->arena_bytes > arena_.bytes() && stream && engine_->device()->is_recording(stream))
    return invalid(
        "this shape needs more memory than the session holds, and a stream that is being captured cannot wait "
        "for it: enqueue the shape once before the capture");
  INGOT_TRY(reserve_arena(*plan));
  return issue_at(*plan, at, on);
}

}  // namespace ingot::runtime
