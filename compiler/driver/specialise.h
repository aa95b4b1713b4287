// Compiling for given inputs: where operators need the values of inputs (axes, sizes, switches), those inputs become
// constants of the program; where that is not enough, the inputs' dims are fixed, too. Used by `run` and `test`, which know the inputs before they compile.
#pragma once

#include "compiler/driver/session.h"

namespace ingot {

struct SpecialisedModel {
  Model model;
  std::vector<Tensor> inputs;               // those that are left, in the program's order
  std::vector<std::string> specialised_on;  // the others
};

/// `given` are the model's inputs in its own order (names may be empty); more than it requires are new values of its
/// initialisers. A model that imports without their values is
/// compiled as by Model::load. Error: the compilation's, or a needed value is too large to be one of those.
Result<SpecialisedModel> load_for_inputs(const std::string& path, const std::string& device,
                                         const CompileOptions& options, const std::vector<NamedTensor>& given);

}  // namespace ingot
