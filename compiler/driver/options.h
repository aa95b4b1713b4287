// What a caller may decide about a compilation. One plain struct: the command line fills it, the library reads it.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "compiler/support/tensor.h"

namespace ingot {

/// Sizes that kernels are tuned for: leading dims are `batch`, others 64, but for those named; all within their ranges.
struct TuningPoint {
  int64_t batch = 1;
  std::map<std::string, int64_t> dims;
};

struct CompileOptions {
  /// "cpu", or CUDA targets: "sm_80", "sm_90a", "ptx_75"; several CUDA targets make one file for several GPUs.
  std::vector<std::string> targets{"cpu"};
  /// Input name -> one text per dimension: "8", "1..64", "?" (frontend/onnx_import.h: ImportOptions::shapes).
  std::map<std::string, std::vector<std::string>> shapes;
  /// Inputs that become constants of these values (frontend/onnx_import.h: ImportOptions::constants).
  std::map<std::string, TensorPtr> constants;
  std::string until;                 // stop the pipeline before this pass
  std::vector<std::string> skip;     // passes left out
  std::string dump_dir;              // numbered IR, kernels and plan go here, when not empty
  /// "fp32" (what the model says), "tf32" (products of f32 values by one tf32 product), "fp16" or "bf16" (values between
  /// kernels and weights in 16 bits).
  std::string precision = "fp32";
  bool fuse = true;                  // false: every operator is a kernel of its own, to compare with
  bool verify_passes = false;        // check "unchanged means unchanged" after each pass (costs a print of the graph)
  int lanes = 4;                     // CUDA: streams that independent branches may use; the CPU runs one kernel at a time
  int threads = 0;                   // of the compiler; 0: as many as the machine has
  /// Plans of kernels by measurement, on this GPU (devices.h), for so many seconds; 0: those that the store has. None: by estimate.
  /// Targets that are not that GPU's are left alone.
  std::optional<double> tune_seconds;
  std::string tune_device = "cuda:0";
  std::vector<TuningPoint> tune_at{{1, {}}, {64, {}}};
  std::function<void(const std::string& message)> warn;  // may be empty
  std::function<void(const std::string& what, size_t done, size_t total)> progress;  // may be empty
  /// May be empty. Called before a compilation fails because operators need the values of these inputs of the model.
  std::function<void(const std::vector<std::string>& inputs)> needs_values;
};

}  // namespace ingot
