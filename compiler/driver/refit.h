// New weights into an engine file, without compiling a kernel. The file keeps the model's graph without its weights and the
// options it was compiled with; import and passes run again over the new weights, which replays all folding, and the
// programs that come out must be the file's own in everything but their constants.
#pragma once

#include <string>

#include "compiler/driver/session.h"
#include "frontend/weights_apart.h"
#include "runtime/engine_file.h"

namespace ingot {

/// What goes into EngineFile::folding: the options and the graph.
Result<std::string> record_folding(const std::string& model_path, const CompileOptions& options);

/// The file with other weights; bit for bit what compiling the new model would give. `weights` as with_weights wants them.
/// Errors: the file keeps no graph, a weight does not fit, or a value decided something (a factor of one that was left
/// out, a constant inside a kernel), so that the new weights need other kernels: the message says which.
Result<runtime::EngineFile> refit(const runtime::EngineFile& file, const Weights& weights);

/// Likewise with the weights of another model, which must be the same in all but those: a changed node or small constant
/// is an Error.
Result<runtime::EngineFile> refit(const runtime::EngineFile& file, const OnnxModel& model);

}  // namespace ingot
