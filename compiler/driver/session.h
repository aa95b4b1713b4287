// The library's front door. compile_model is the table of contents of a compilation; Model is something to run.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "codegen/build_program.h"
#include "compiler/driver/options.h"
#include "compiler/support/target_traits.h"
#include "frontend/onnx_import.h"
#include "frontend/tensor_file.h"
#include "passes/pass_manager.h"
#include "runtime/executor.h"
#include "runtime/script.h"

namespace ingot {

/// What tuning found out about a kernel at some sizes.
struct TunedKernel {
  std::string kernel, at;              // its stem; "N=64"
  std::string plan, default_plan;      // the same where nothing was faster by more than noise
  double us = 0, default_us = 0;
  size_t measured = 0;                 // candidates that ran, the default among them
  bool from_store = false;
  std::vector<std::string> dropped;    // candidates that failed, and how
};

/// Everything a compilation knows; what inspection, checks and the engine file are made from.
struct Compilation {
  ImportReport import;
  size_t model_nodes = 0;            // nodes in the file, constants included
  Graph graph;                       // fused
  std::vector<ShapeRequirement> requirements;
  MemoryPlan plan;
  LoweredProgram lowered;
  std::vector<PassTrace> passes;
  std::vector<Refusal> refusals;
  runtime::Program program;          // empty when only lowered
  std::vector<TunedKernel> tuned;
  /// Of a model whose course is decided at run time (compiler/driver/partition.h): `graph` is then the imported one, and
  /// `program` holds the programs of the parts.
  std::vector<Compilation> parts;
  std::vector<runtime::Script> scripts;
  std::vector<std::vector<std::string>> script_names;  // of each script's values
  double import_ms = 0, passes_ms = 0, codegen_ms = 0;
};

/// Imports, optimises and lowers a model; no binaries yet.
Result<Compilation> lower_model(const std::string& path, const CompileOptions& options);
/// Likewise of a model in memory.
Result<Compilation> lower_model(const OnnxModel& model, const CompileOptions& options);
/// lower_model, then kernels for options.targets.
Result<Compilation> compile_model(const std::string& path, const CompileOptions& options);

/// One compilation for each group of options.targets (targets.h), for one engine file: equal constants share memory.
Result<std::vector<Compilation>> compile_for_targets(const std::string& path, const CompileOptions& options);

/// lower_model, and the program with kernels that have their names, which say what their code is, but no code.
Result<Compilation> compile_names(const OnnxModel& model, const CompileOptions& options);

/// lower_model, and a program with bindings and sizes but no kernels: what the interpreter and inspection need.
Result<Compilation> compile_interface(const std::string& path, const CompileOptions& options);

/// A model on a device. Threads may share it, but runs happen one at a time; a service gives each thread a runtime::Session
/// on engine().
class Model {
 public:
  /// `path` is an .onnx model, which is compiled for the device, or an .ingot file. `device` is "cpu", "cuda:0",
  /// "interpreter" (only .onnx), or "" for a GPU if there is one.
  static Result<Model> load(const std::string& path, const std::string& device = "",
                            const CompileOptions& options = {});

  /// Inputs by name; every input must be there. Outputs in the model's order.
  Result<std::vector<NamedTensor>> run(const std::map<std::string, Tensor>& inputs) const;
  Result<std::vector<Tensor>> run_ordered(const std::vector<Tensor>& inputs) const;
  Result<runtime::Profile> profile(const std::vector<Tensor>& inputs) const;

  const std::vector<runtime::Binding>& inputs() const;
  const std::vector<runtime::Binding>& outputs() const;
  const runtime::Program& program() const;
  const std::shared_ptr<const runtime::Engine>& engine() const { return engine_; }
  const std::string& device_name() const { return device_name_; }
  /// The nominal numbers of the device.
  const TargetTraits& traits() const { return traits_; }
  const std::shared_ptr<const Compilation>& compilation() const { return compilation_; }  // null for an .ingot

 private:
  std::string device_name_;
  TargetTraits traits_;
  std::shared_ptr<const Compilation> compilation_;
  std::shared_ptr<const runtime::Engine> engine_;  // null on the interpreter
  std::shared_ptr<const runtime::Program> program_;
  std::shared_ptr<std::mutex> running_ = std::make_shared<std::mutex>();
  std::shared_ptr<runtime::Session> session_;
};

}  // namespace ingot
