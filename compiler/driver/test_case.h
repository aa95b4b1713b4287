// One recorded case: a model with test_data_set_N folders beside it, run and compared with what it should give. The verbs
// test and check are built on it.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "compiler/driver/session.h"

namespace ingot {

struct Tolerance {
  double rtol = 1e-3, atol = 1e-7;
};

struct Comparison {
  bool equal = true;
  double worst = 0;  // largest |difference| / (atol + rtol*|expected|)
  std::string text;
};
/// Types and dims must agree; NaN equals NaN.
Comparison compare(const Tensor& got, const Tensor& want, Tolerance tolerance);

struct CaseResult {
  std::string name;         // model folder/data set
  std::string specialised;  // inputs that were made constants, comma-separated
  Result<double> share;     // of the tolerance that was used
};

struct CaseOptions {
  std::string device = "cpu";
  Tolerance tolerance;
  CompileOptions compile;
  bool smallest = false;    // only the smallest data set
};

/// Models at or below the given folders (or the model files themselves), sorted.
std::vector<std::filesystem::path> find_models(const std::vector<std::string>& roots);
/// Runs every data set of the model.
std::vector<CaseResult> run_case(const CaseOptions& options, const std::filesystem::path& model);

}  // namespace ingot
