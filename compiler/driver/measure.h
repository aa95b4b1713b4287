// Programs of one launch each, timed against each other on a device as they are deployed: inputs and outputs in turn
// from enough memory that the L2 cache is cold, launches in a recording. What tuning's worker process does
// (tuning_worker.h).
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "runtime/device.h"
#include "runtime/program.h"

namespace ingot {

/// What a candidate took beside the first one of its round.
struct Timing {
  double us = 0;  // median of a launch
  double ratio = 1;  // median, over the samples, of its time over the first one's
  double noise = 0;  // of the ratio: half the width that most samples lie in, over the root of their number
  bool agrees = true;  // its results are the first one's, but for rounding
  std::string failure;  // it did not run, and why; nothing else is set then
};

struct MeasureOptions {
  int samples = 15;
  double sample_us = 500;  // of a recording, at least
  uint64_t cold_bytes = uint64_t{256} << 20;  // more than twice the L2 cache of any GPU
  size_t most_copies = 256;
};

/// Times the programs, all of the same inputs and outputs, in turns. `starting` is called before each of them runs.
/// Error: what the first that fails says; `starting` has named it. A device that does not record launches is not
/// measured as deployed: a sample is then one launch.
Result<std::vector<Timing>> measure_in_turns(const std::vector<std::shared_ptr<const runtime::Program>>& programs,
                                             const std::shared_ptr<runtime::Device>& device,
                                             const MeasureOptions& options,
                                             const std::function<void(size_t)>& starting);

/// The index of the program to take: the first, unless another one agrees with it and is faster by more than noise.
size_t fastest_of(const std::vector<Timing>& timings);

}  // namespace ingot
