#include "runtime/pipeline.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/host_copy.h"
#include "runtime/memory.h"

namespace ingot::runtime {

static constexpr uint64_t kPart = 4 << 20;

Result<std::unique_ptr<Pipeline>> Pipeline::create(std::shared_ptr<const Engine> engine, size_t depth,
                                                   SessionOptions options) {
  if (depth < 1) return invalid("a pipeline needs room for one request");
  std::unique_ptr<Pipeline> p(new Pipeline);
  p->session_ = INGOT_TRY(Session::create(std::move(engine), options));
  const Program& program = p->session_->engine()->program();
  Device& device = *p->session_->engine()->device();
  p->up_ = INGOT_TRY(device.create_stream());
  p->down_ = INGOT_TRY(device.create_stream());
  p->slots_.resize(depth);
  for (Slot& slot : p->slots_) {
    slot.inputs.resize(program.inputs.size());
    slot.outputs.resize(program.outputs.size());
    for (auto* event : {&slot.uploaded, &slot.computed, &slot.downloaded})
      *event = INGOT_TRY(device.create_event(false));
  }
  return p;
}

Pipeline::~Pipeline() {
  if (!session_) return;
  Device& device = *session_->engine()->device();
  for (const auto* stream : {&up_, &down_})
    if (*stream) static_cast<void>(device.synchronize(stream->get()));
  static_cast<void>(session_->synchronize());
  for (Slot& slot : slots_)
    for (auto* list : {&slot.inputs, &slot.outputs})
      for (Buffer& b : *list) device.release_host(b.host);
}

Status Pipeline::reserve(Buffer& buffer, uint64_t bytes, const std::string& what) {
  const auto& device = session_->engine()->device();
  if (buffer.host && buffer.host_bytes >= bytes) return {};
  device->release_host(std::exchange(buffer.host, nullptr));
  buffer.host_bytes = 0;
  buffer.device = DeviceMemory();
  const uint64_t room = align_up(bytes + 1);
  buffer.host = INGOT_TRY(device->allocate_host(room));
  buffer.host_bytes = room;
  auto memory = device->allocate(room);
  if (!memory) return out_of_memory(*device, room, what, memory.error());
  buffer.device = DeviceMemory(device, memory.value(), room);
  return {};
}

Status Pipeline::upload(Slot& slot, const std::vector<Tensor>& inputs, std::vector<DeviceTensor>& tensors) {
  const Program& p = session_->engine()->program();
  Device& device = *session_->engine()->device();
  for (size_t i = 0; i < inputs.size(); ++i) {
    Buffer& b = slot.inputs[i];
    INGOT_TRY(reserve(b, inputs[i].bytes(), fmt::format("input '{}'", p.inputs[i].name)));
    // A part is on its way to the device while the next one is copied.
    for (uint64_t done = 0; done < inputs[i].bytes(); done += kPart) {
      const uint64_t bytes = std::min<uint64_t>(kPart, inputs[i].bytes() - done);
      char* pinned = static_cast<char*>(b.host) + done;
      copy_bytes(pinned, static_cast<const char*>(inputs[i].data()) + done, bytes);
      INGOT_TRY(device.upload(static_cast<char*>(b.device.data()) + done, pinned, bytes, up_.get()));
    }
    tensors.push_back({b.device.data(), inputs[i].dims()});
  }
  return device.record(*slot.uploaded, up_.get());
}

Status Pipeline::compute(Slot& slot, const std::vector<DeviceTensor>& tensors) {
  const Program& p = session_->engine()->program();
  Device& device = *session_->engine()->device();
  std::vector<void*> outputs;
  for (size_t i = 0; i < slot.outputs.size(); ++i) {
    const int64_t count = INGOT_TRY(checked_count(slot.output_dims[i], size_of(p.outputs[i].type)));
    INGOT_TRY(reserve(slot.outputs[i], static_cast<uint64_t>(count) * size_of(p.outputs[i].type),
                      fmt::format("output '{}'", p.outputs[i].name)));
    outputs.push_back(slot.outputs[i].device.data());
  }
  INGOT_TRY(device.wait(session_->stream(), *slot.uploaded));
  INGOT_TRY(session_->enqueue(tensors, outputs, nullptr));
  return device.record(*slot.computed, session_->stream());
}

Status Pipeline::download(Slot& slot) {
  const Program& p = session_->engine()->program();
  Device& device = *session_->engine()->device();
  INGOT_TRY(device.wait(down_.get(), *slot.computed));
  for (size_t i = 0; i < slot.outputs.size(); ++i) {
    const int64_t count = INGOT_TRY(checked_count(slot.output_dims[i], size_of(p.outputs[i].type)));
    INGOT_TRY(device.download(slot.outputs[i].host, slot.outputs[i].device.data(),
                              static_cast<uint64_t>(count) * size_of(p.outputs[i].type), down_.get()));
  }
  return device.record(*slot.downloaded, down_.get());
}

bool Pipeline::runs_at_once() const {
  return session_->engine()->device()->is_host() || !session_->engine()->program().scripts.empty();
}

Result<uint64_t> Pipeline::submit(const std::vector<Tensor>& inputs) {
  Slot& slot = slots_[next_ % slots_.size()];
  if (slot.busy)
    return invalid(fmt::format("request {} must be fetched before another one is submitted", slot.request));
  if (runs_at_once()) {
    slot.results = INGOT_TRY(session_->run(inputs));
  } else {
    slot.output_dims = INGOT_TRY(session_->output_dims(inputs));
    std::vector<DeviceTensor> tensors;
    INGOT_TRY(upload(slot, inputs, tensors));
    INGOT_TRY(compute(slot, tensors));
    INGOT_TRY(download(slot));
  }
  slot.request = next_;
  slot.busy = true;
  return next_++;
}

Result<std::vector<Tensor>> Pipeline::fetch(uint64_t request) {
  Slot& slot = slots_[request % slots_.size()];
  if (!slot.busy || slot.request != request) return invalid(fmt::format("request {} is not in flight", request));
  slot.busy = false;
  if (runs_at_once()) return std::move(slot.results);
  INGOT_TRY(session_->engine()->device()->synchronize(*slot.downloaded));
  const Program& p = session_->engine()->program();
  std::vector<Tensor> outputs;
  for (size_t i = 0; i < slot.outputs.size(); ++i) {
    outputs.push_back(INGOT_TRY(raw_tensor(p.outputs[i].type, slot.output_dims[i], p.outputs[i].name)));
    copy_bytes(outputs[i].mutable_data(), slot.outputs[i].host, outputs[i].bytes());
  }
  return outputs;
}

}  // namespace ingot::runtime
