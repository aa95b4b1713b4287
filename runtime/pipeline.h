// Pipeline: a queue of requests with host tensors, whose copies overlap with compute. While one request is computed, the
// next is uploaded and the last is downloaded, on streams of their own, through pinned buffers. Belongs to one thread at
// a time. On a host device there is nothing to copy, and the host takes part in running a model in parts: there a request
// is computed when it is submitted.
#pragma once

#include "runtime/executor.h"

namespace ingot::runtime {

class Pipeline {
 public:
  /// `depth` requests may be in flight; two overlap copies with compute, a third keeps the queue full.
  static Result<std::unique_ptr<Pipeline>> create(std::shared_ptr<const Engine> engine, size_t depth = 3,
                                                  SessionOptions options = {});
  ~Pipeline();

  /// Takes the inputs (they may be changed after it returns) and starts the request. Returns its number. Error: that of
  /// Session::run; Invalid when request number - depth has not been fetched.
  Result<uint64_t> submit(const std::vector<Tensor>& inputs);
  /// Waits for the request and hands out its outputs, once.
  Result<std::vector<Tensor>> fetch(uint64_t request);

  size_t depth() const { return slots_.size(); }
  Session& session() { return *session_; }

 private:
  /// Pinned host memory and the device memory it is copied to or from.
  struct Buffer {
    DeviceMemory device;
    void* host = nullptr;
    uint64_t host_bytes = 0;
  };
  struct Slot {
    std::vector<Buffer> inputs, outputs;
    std::vector<Dims> output_dims;
    std::unique_ptr<Event> uploaded, computed, downloaded;
    uint64_t request = 0;
    bool busy = false;
    std::vector<Tensor> results;  // of a host device
  };

  Pipeline() = default;
  bool runs_at_once() const;
  Status reserve(Buffer& buffer, uint64_t bytes, const std::string& what);
  Status upload(Slot& slot, const std::vector<Tensor>& inputs, std::vector<DeviceTensor>& tensors);
  Status compute(Slot& slot, const std::vector<DeviceTensor>& tensors);
  Status download(Slot& slot);

  std::unique_ptr<Session> session_;
  std::unique_ptr<Stream> up_, down_;
  std::vector<Slot> slots_;
  uint64_t next_ = 0;
};

}  // namespace ingot::runtime
