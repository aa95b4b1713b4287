// A process that measures, so that a kernel that hangs or faults takes nothing else with it. It lives on from round to
// round; when a candidate takes too long or ends it, a new one measures the rest.
#pragma once

#include <sys/types.h>
#include <string>
#include <vector>

#include "compiler/driver/measure.h"

namespace ingot {

struct WorkerOptions {
  std::vector<std::string> command;  // argv of the process; it does what serve_worker does
  double answer_seconds = 10;  // that a candidate may take before it is given up, and a round of samples likewise
  double start_seconds = 60;  // and the process to open the device
};

class TuningWorker {
 public:
  explicit TuningWorker(WorkerOptions options) : options_(std::move(options)) {}
  ~TuningWorker();
  TuningWorker(const TuningWorker&) = delete;
  /// The timings of a round, in order. A candidate that fails has a failure; where the first fails, all have it. Error:
  /// the process cannot be started, or the programs not be handed to it.
  Result<std::vector<Timing>> measure(const std::vector<std::shared_ptr<const runtime::Program>>& programs);

 private:
  Status start();
  void stop();
  Status send(const std::string& text);
  Result<std::string> read_line(double seconds);
  std::string how_it_ended();
  Status write_programs(const std::vector<std::shared_ptr<const runtime::Program>>& programs);
  Status run_round(const std::vector<size_t>& left, std::vector<Timing>& timings);

  WorkerOptions options_;
  std::string folder_;  // of the programs of a round
  pid_t process_ = -1;
  int to_ = -1, from_ = -1;  // its standard input and output
  std::string unread_;
};

/// The other side: opens the device, and measures what comes in on standard input until that ends. The exit code.
int serve_worker(const std::string& device);

}  // namespace ingot
