#include "compiler/driver/refit.h"

#include <fmt/format.h>

#include <sstream>

#include "compiler/driver/targets.h"

namespace ingot {
namespace {

constexpr const char* kMagic = "ingot folding 1\n";

/// Options as lines of text, an empty line, then the graph's bytes.
std::string header_of(const CompileOptions& o) {
  std::string text = fmt::format("{}lanes {}\nfuse {}\nprecision {}\n", kMagic, o.lanes, o.fuse ? 1 : 0, o.precision);
  for (const std::string& pass : o.skip) text += fmt::format("skip {}\n", pass);
  for (const auto& [name, dims] : o.shapes) {
    text += fmt::format("shape {} {}\n", dims.size(), name);
    for (const std::string& d : dims) text += d + "\n";
  }
  return text + "\n";
}

struct Recorded {
  CompileOptions options;
  std::string_view graph;
};
Result<Recorded> parse_folding(const std::string& text) {
  if (text.rfind(kMagic, 0) != 0)
    return unsupported("the file does not keep the model's graph: compile it again, without --no-refit");
  Recorded r;
  size_t at = std::string_view(kMagic).size();
  const auto line = [&] {
    const size_t end = std::min(text.find('\n', at), text.size());
    std::string s = text.substr(at, end - at);
    at = std::min(end + 1, text.size());
    return s;
  };
  for (std::string s = line(); !s.empty(); s = line()) {
    std::istringstream words(s);
    std::string key, name;
    size_t count = 0;
    words >> key;
    if (key == "lanes") words >> r.options.lanes;
    else if (key == "fuse") words >> r.options.fuse;
    else if (key == "precision") words >> r.options.precision;
    else if (key == "skip") words >> r.options.skip.emplace_back();
    else if (key == "shape" && words >> count && count <= 64 && std::getline(words >> std::ws, name))
      for (size_t d = 0; d < count; ++d) r.options.shapes[name].push_back(line());
    else return invalid("the recorded options are damaged: " + s);
  }
  r.graph = std::string_view(text).substr(at);
  return r;
}

/// What of two programs differs, constants' data and binaries aside; empty when they are the same.
std::string difference(const runtime::Program& a, const runtime::Program& b) {
  if (a.kernels.size() != b.kernels.size())
    return fmt::format("{} kernels instead of {}", b.kernels.size(), a.kernels.size());
  for (size_t i = 0; i < a.kernels.size(); ++i)
    if (a.kernels[i].name != b.kernels[i].name) return runtime::describe_kernel(a.kernels[i]) + " would have other code";
  if (a.constants.size() != b.constants.size()) return "other constants would remain after folding";
  for (size_t i = 0; i < a.constants.size(); ++i)
    if (a.constants[i].type != b.constants[i].type || a.constants[i].dims != b.constants[i].dims)
      return fmt::format("constant '{}' would have another shape", a.constants[i].name);
  if (!(a.instructions == b.instructions)) return "the launches differ";
  const bool same = a.shapes == b.shapes && a.values == b.values && a.slots == b.slots && a.inputs == b.inputs &&
                    a.outputs == b.outputs && a.symbols == b.symbols;
  return same ? "" : "the memory plan differs";
}

}  // namespace

Result<std::string> record_folding(const std::string& model_path, const CompileOptions& options) {
  return header_of(options) + INGOT_TRY(without_weights(INGOT_TRY(read_model(model_path))));
}

Result<runtime::EngineFile> refit(const runtime::EngineFile& file, const Weights& weights) {
  const Recorded recorded = INGOT_TRY(parse_folding(file.folding));
  const OnnxModel model = INGOT_TRY(with_weights(recorded.graph, weights, "the recorded graph"));
  runtime::EngineFile out = file;
  for (auto& program : out.programs) {
    CompileOptions o = recorded.options;
    o.targets = runtime::targets_of(*program);
    const Compilation c = INGOT_TRY(compile_names(model, o));
    const std::string why = difference(*program, c.program);
    if (!why.empty())
      return unsupported(fmt::format("these weights do not fit the compiled program for {}: {}; compile the model again", program->target, why));
    auto fresh = std::make_shared<runtime::Program>(*program);
    for (size_t i = 0; i < fresh->constants.size(); ++i) fresh->constants[i].data = c.program.constants[i].data;
    program = std::move(fresh);
  }
  return out;
}

Result<runtime::EngineFile> refit(const runtime::EngineFile& file, const OnnxModel& model) {
  const Recorded recorded = INGOT_TRY(parse_folding(file.folding));
  if (INGOT_TRY(without_weights(model)) != recorded.graph)
    return unsupported("the model differs from the compiled one in more than its weights (a node, a name, an integer or a "
                       "small constant): compile it");
  return refit(file, INGOT_TRY(weights_of(model)));
}

}  // namespace ingot
