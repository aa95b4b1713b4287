// What orc_jit.cpp and object_compiler.cpp share: LLVM's target, and the note in every object that says which processor
// features it needs.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace ingot::cpu {

void initialize_target();

/// The features that the object needs and this machine lacks, separated by commas; empty when it can run.
std::string missing_features(const std::vector<uint8_t>& object);

}  // namespace ingot::cpu
