// The ways in which one graph is compiled and run; each must give what the operators mean.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "compiler/support/target_traits.h"
#include "runtime/device.h"
#include "tests/random_graphs/graph_case.h"

namespace ingot::testing {

struct Variant {
  std::string
      device{};  // interpreter, text (CUDA kernels are printed, and interpreted), nvrtc (compiled, too), cpu, emulator, cuda:0
  std::string target = "cpu";  // what passes and planners work for
  std::string skip{};  // a pass left out
  std::string precision = "fp32";
  bool fuse = true;
  std::string name() const;
};

/// Those that a case goes through; which pass is skipped, and what only some cases do, follows from `turn`.
std::vector<Variant> variants_for(uint64_t turn, const std::vector<std::string>& devices);
/// Every one, for a case that is run by hand.
std::vector<Variant> all_variants(const std::vector<std::string>& devices);

/// A compiled variant. Runs at any sizes; memory that it has to write is filled with a pattern first.
class Runnable {
 public:
  virtual ~Runnable() = default;
  virtual Result<std::vector<Tensor>> run(const Sizes& sizes, const std::vector<Tensor>& inputs) = 0;
};
Result<std::unique_ptr<Runnable>> compile_variant(const GraphCase& c, const Variant& v);

/// What f32 values may be rounded to.
DType storage_of(const Variant& v);

}  // namespace ingot::testing
