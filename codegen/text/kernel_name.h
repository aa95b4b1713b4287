// Kernel names and header comments. A name is a pure function of the content: fused_<ops>_<hash6>, the hash taken over
// the body with a placeholder for the name. The header comment is not hashed: it may say what differs between models.
#pragma once

#include <string>

#include "codegen/kernel/kernel.h"

namespace ingot {

/// `stem` is the operators, joined by '_' ("matmul_add_relu"); it is lowered, cleaned and cut to a readable length.
std::string kernel_name(const std::string& stem, const std::string& body_with_placeholder);

/// Comment lines: the name, Kernel::header (fused operators with their nodes), typed inputs and outputs, the plan, how
/// to run it again.
std::string header_comment(const Kernel& kernel, const std::string& name, const Schedule& schedule,
                           const std::string& target);

/// Replaces every occurrence of `from`.
std::string replace_all(std::string text, const std::string& from, const std::string& to);

}  // namespace ingot
