// The .ingot file: one Program for each kind of device it was compiled for, their kernels' binaries and their weights in
// one file that the runtime maps and checks before use.
//   header    64 bytes: magic, version, section count, file size, checksum of the section table
//   table     one row per section: kind, offset, size, 128-bit checksum
//   sections  one program (FlatBuffers, runtime/engine.fbs) per kind of device, code, notes (text), folding (text), weights;
//             each starts on a 64-byte boundary
// Equal weights and equal binaries of several programs are stored once, and binaries are compressed; weights are used where
// they are mapped. The same contents always give the same bytes.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "compiler/support/result.h"
#include "runtime/device.h"
#include "runtime/program.h"

namespace ingot::runtime {

constexpr uint32_t kEngineFileVersion = 5;

struct EngineFile {
  std::vector<std::shared_ptr<const Program>> programs;  // loaded: constants point into the mapped file
  std::string notes;  // JSON of the compiler: model hash, options
  std::string folding;  // how constants follow from the model's weights (compiler/driver/refit.h); may be empty
  std::vector<std::string> left_out;  // loaded for a device: targets of programs for other kinds of device
  bool host_code_dropped = false;  // it has x86-64 objects that were not loaded for want of trust
};

struct LoadOptions {
  bool trust_host_code = false;  // keep x86-64 objects: they are code that runs with the caller's rights
  const Device* device = nullptr;  // load only programs that may suit it; null: all
  bool check_weights = true;  // read every weight once and compare its checksum
};

/// Writes beside `path` and renames, so that a reader never sees half a file.
Status save_engine(const EngineFile& file, const std::string& path);
/// Errors name what is wrong: not an engine, cut off, edited, of another version, or holding numbers out of range.
Result<EngineFile> load_engine(const std::string& path, const LoadOptions& options = {});

/// The program of the file that suits `device` best. The Error says, for each program, why it does not run there.
Result<std::shared_ptr<const Program>> program_for(const EngineFile& file, const Device& device);
/// The targets of a program, taken apart: "sm_89,ptx_89" gives two.
std::vector<std::string> targets_of(const Program& program);

}  // namespace ingot::runtime
