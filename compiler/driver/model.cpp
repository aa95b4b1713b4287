// Model: a compiled or loaded program on a device.
#include <fmt/format.h>

#include "compiler/driver/devices.h"
#include "compiler/driver/reference.h"
#include "compiler/driver/session.h"
#include "compiler/driver/targets.h"
#include "runtime/engine_file.h"

namespace ingot {
namespace {

bool is_engine_file(const std::string& path) { return path.size() > 6 && path.substr(path.size() - 6) == ".ingot"; }

}  // namespace

Result<Model> Model::load(const std::string& path, const std::string& device, const CompileOptions& options) {
  Model m;
  if (device == "interpreter") {
    if (is_engine_file(path)) return unsupported("the interpreter runs .onnx models, not engine files");
    CompileOptions o = options;
    o.targets = {"cpu"};
    m.compilation_ = std::make_shared<const Compilation>(INGOT_TRY(compile_interface(path, o)));
    m.program_ = std::shared_ptr<const runtime::Program>(m.compilation_, &m.compilation_->program);
    m.device_name_ = device;
    return m;
  }
  const OpenDevice opened = INGOT_TRY(open_device(device));
  m.device_name_ = opened.device->name();
  m.traits_ = INGOT_TRY(traits_of({opened.target}));
  if (is_engine_file(path)) {
    runtime::LoadOptions load;
    load.trust_host_code = opened.device->is_host();  // running the file on the CPU is asking for its code
    load.device = opened.device.get();
    m.program_ = INGOT_TRY(runtime::program_for(INGOT_TRY(runtime::load_engine(path, load)), *opened.device));
  } else {
    CompileOptions o = options;
    o.targets = {opened.target};
    m.compilation_ = std::make_shared<const Compilation>(INGOT_TRY(compile_model(path, o)));
    m.program_ = std::shared_ptr<const runtime::Program>(m.compilation_, &m.compilation_->program);
  }
  m.engine_ = INGOT_TRY(runtime::Engine::create(m.program_, opened.device));
  m.session_ = INGOT_TRY(runtime::Session::create(m.engine_));
  return m;
}

Result<std::vector<Tensor>> Model::run_ordered(const std::vector<Tensor>& inputs) const {
  const std::lock_guard<std::mutex> lock(*running_);
  if (session_) return session_->run(inputs);
  const auto interpret = [](const Compilation& c, const std::vector<Tensor>& in) {
    return run_reference(c.graph, c.plan, c.lowered, c.requirements, in);
  };
  if (compilation_->scripts.empty()) return interpret(*compilation_, inputs);
  const auto run_part = [&](int32_t part, const auto& in) {
    return interpret(compilation_->parts[static_cast<size_t>(part)], in);
  };
  return runtime::run_script(compilation_->scripts, run_part, inputs);
}

Result<std::vector<NamedTensor>> Model::run(const std::map<std::string, Tensor>& named) const {
  std::vector<Tensor> ordered;
  for (const runtime::Binding& b : inputs()) {
    auto it = named.find(b.name);
    if (it == named.end()) return invalid(fmt::format("input \"{}\" is missing", b.name));
    ordered.push_back(it->second);
  }
  for (const auto& [name, tensor] : named) {
    std::string known;
    bool found = false;
    for (const runtime::Binding& b : inputs()) {
      found |= b.name == name;
      known += (known.empty() ? "" : ", ") + b.name;
    }
    if (!found) return invalid(fmt::format("the model has no input \"{}\"; its inputs are: {}", name, known));
  }
  std::vector<Tensor> results = INGOT_TRY(run_ordered(ordered));
  std::vector<NamedTensor> outputs_named;
  for (size_t i = 0; i < results.size(); ++i) outputs_named.push_back({outputs()[i].name, std::move(results[i])});
  return outputs_named;
}

Result<runtime::Profile> Model::profile(const std::vector<Tensor>& inputs) const {
  if (!session_) return unsupported("the interpreter has no profile");
  return session_->profile(inputs);
}

const std::vector<runtime::Binding>& Model::inputs() const { return program_->inputs; }
const std::vector<runtime::Binding>& Model::outputs() const { return program_->outputs; }
const runtime::Program& Model::program() const { return *program_; }

}  // namespace ingot
