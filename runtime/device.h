// Device: what the executor needs of a machine: memory, copies, kernels, streams and events. Implemented by cpu/, cuda/
// and (over the same driver table as cuda/) by the emulator of the tests.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "compiler/support/result.h"
#include "runtime/program.h"

namespace ingot::runtime {

/// A queue of work; operations of one stream run in order. A null stream pointer means the device's own default queue.
class Stream {
 public:
  virtual ~Stream() = default;
};
class Event {
 public:
  virtual ~Event() = default;
};
/// Launches recorded from a stream, replayed as one (a CUDA graph).
class Recording {
 public:
  virtual ~Recording() = default;
};
/// A kernel made ready on one device.
class LoadedKernel {
 public:
  virtual ~LoadedKernel() = default;
};

struct MemoryInfo {
  uint64_t free_bytes = 0, total_bytes = 0;
};

/// A BoxMap with numbers.
struct BoxSizes {
  int32_t argument = 0;
  DType type = DType::F16;
  int64_t offset = 0;
  int rank = 0;
  std::array<int64_t, kMaxBoxRank> extents{}, strides{};
  std::array<int32_t, kMaxBoxRank> box{};
  bool window = false;
  std::array<int32_t, kMaxBoxRank> low{}, high{}, steps{};

  /// Along this axis (0: none) the box is no longer than what is there.
  void clip(int32_t axis) {
    const auto at = static_cast<size_t>(axis);
    if (axis > 0) box[at] = static_cast<int32_t>(std::clamp<int64_t>(extents[at], 1, box[at]));
  }
};

BoxSizes sizes_of(const BoxMap& map, std::span<const int64_t> lines);

struct Launch {
  std::span<void* const> buffers;
  std::span<const int64_t> dims;
  std::array<int64_t, 3> grid{1, 1, 1};
  std::span<const BoxSizes> boxes;
  bool may_start_early = true;  // beside the end of what the stream holds before it, if the kernel waits for its inputs itself
};

class Device {
 public:
  virtual ~Device() = default;
  virtual std::string name() const = 0;  // "cpu", "cuda:0 (NVIDIA H200)"
  /// True when the host may use device pointers directly.
  virtual bool is_host() const = 0;
  /// How well binaries for `target` suit this device: 0 not at all, and of several the largest is the one to take.
  virtual int preference(const std::string& target) const = 0;
  /// Units that run a kernel's blocks side by side: a kernel with fewer blocks leaves room for another one.
  virtual int parallel_units() const { return 1; }

  /// At least `bytes` (and never less than 64), aligned to 256.
  virtual Result<void*> allocate(uint64_t bytes) = 0;
  virtual void release(void* memory) = 0;
  virtual MemoryInfo memory_info() const = 0;

  /// Asynchronous; the host side of copy_to_device may be reused at once, that of copy_to_host is valid after
  /// synchronize.
  virtual Status copy_to_device(void* to, const void* from, uint64_t bytes, Stream* stream) = 0;
  virtual Status copy_to_host(void* to, const void* from, uint64_t bytes, Stream* stream) = 0;
  virtual Status copy_on_device(void* to, const void* from, uint64_t bytes, Stream* stream) = 0;

  /// Host memory that the device reaches directly, aligned to 256.
  virtual Result<void*> allocate_host(uint64_t bytes);
  virtual void release_host(void* memory);
  /// Like the copies above, but between the device and memory of allocate_host, without staging: the host side must be
  /// left alone until the stream has come past.
  virtual Status upload(void* to, const void* from, uint64_t bytes, Stream* stream) {
    return copy_to_device(to, from, bytes, stream);
  }
  virtual Status download(void* to, const void* from, uint64_t bytes, Stream* stream) {
    return copy_to_host(to, from, bytes, stream);
  }

  virtual Result<std::unique_ptr<LoadedKernel>> load(const KernelInfo& kernel) = 0;
  virtual Status launch(const LoadedKernel& kernel, const Launch& launch, Stream* stream) = 0;

  virtual Result<std::unique_ptr<Stream>> create_stream() = 0;
  /// Wraps a stream of the caller (a CUstream); it is not destroyed with the wrapper.
  virtual Result<std::unique_ptr<Stream>> borrow_stream(void* native) = 0;
  /// Events that only order work (not timed) cost less.
  virtual Result<std::unique_ptr<Event>> create_event(bool timed = true) = 0;
  virtual Status record(Event& event, Stream* stream) = 0;
  virtual Status wait(Stream* stream, const Event& event) = 0;
  /// Milliseconds between two recorded events; waits for the second.
  virtual Result<double> elapsed_ms(const Event& from, const Event& to) = 0;
  virtual Status synchronize(Stream* stream) = 0;
  virtual Status synchronize(const Event& event) = 0;
  /// True while launches on this stream go into somebody's recording.
  virtual bool is_recording(Stream*) { return false; }

  /// Recording is optional: a device that cannot record returns an Unsupported error from begin_recording.
  virtual Status begin_recording(Stream*) { return unsupported(name() + " does not record launches"); }
  virtual Result<std::unique_ptr<Recording>> end_recording(Stream*) { return unsupported("no recording"); }
  virtual Status replay(const Recording&, Stream*) { return unsupported("no recording"); }
};

}  // namespace ingot::runtime
