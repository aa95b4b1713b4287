// The .ingot file: a Program, its kernels' binaries and its weights in one file that the runtime maps and checks before
// use.
//   header    64 bytes: magic, version, section count, file size, checksum of the section table
//   table     one row per section: kind, offset, size, 128-bit checksum
//   sections  program (FlatBuffers, runtime/engine.fbs), code, notes (text), weights; each starts on a 64-byte boundary
// The same program and notes always give the same bytes.
#pragma once

#include <memory>
#include <string>

#include "compiler/support/result.h"
#include "runtime/program.h"

namespace ingot::runtime {

constexpr uint32_t kEngineFileVersion = 1;

struct EngineFile {
  std::shared_ptr<const Program> program;  // constants point into the mapped file
  std::string notes;  // JSON of the compiler: model hash, options, verification results
  bool host_code_dropped = false;  // it has "cpu" binaries that were not loaded for want of trust
};

struct LoadOptions {
  bool trust_host_code = false;  // keep x86-64 objects: they are code that runs with the caller's rights
  bool check_weights = true;  // read every weight once and compare its checksum
};

/// Writes beside `path` and renames, so that a reader never sees half a file.
Status save_engine(const Program& program, const std::string& notes, const std::string& path);
/// Errors name what is wrong: not an engine, cut off, edited, of another version, or holding numbers out of range.
Result<EngineFile> load_engine(const std::string& path, const LoadOptions& options = {});

}  // namespace ingot::runtime
