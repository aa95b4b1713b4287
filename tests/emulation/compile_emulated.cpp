#include "tests/emulation/compile_emulated.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <sstream>

#include <fmt/format.h>

#include "codegen/cuda/prelude.h"
#include "compiler/support/hash.h"

namespace ingot::emulation {

namespace fs = std::filesystem;

namespace {

// Locals start as a pattern, so that what was never written shows; indices of local arrays, shifts and divisions trap. The
// process that loads it has all libraries already: without them linking takes half of the time.
constexpr const char* kFlags =
    "-std=c++20 -O1 -g1 -fPIC -shared -nostdlib -DINGOT_EMULATE -ftrivial-auto-var-init=pattern "
    "-fsanitize=bounds,shift,integer-divide-by-zero -fsanitize-undefined-trap-on-error -mavx2 -mfma "
    "-Wno-unknown-pragmas -Wno-psabi -w";

std::string compiler() {
  const char* chosen = std::getenv("INGOT_EMULATOR_CXX");
  return chosen && *chosen ? chosen : "g++";
}

/// Everything that decides the result besides the kernel's own text.
const std::string& environment_key() {
  static const std::string key = [] {
    std::string all = compiler() + kFlags;
    for (const EmbeddedFile& f : prelude_table()) all += std::string(f.name) + std::string(f.text);
    for (const EmbeddedFile& f : device_table()) all += std::string(f.text);
    return hash_text(all).hex(16);
  }();
  return key;
}

Status write_file(const fs::path& path, std::string_view text) {
  std::error_code error;
  fs::create_directories(path.parent_path(), error);
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  if (!file) return make_error(ErrorKind::Io, fmt::format("cannot write {}", path.string()));
  return {};
}

fs::path folder() {
  return fs::temp_directory_path() / fmt::format("ingot-emulator-{}", ::getuid()) / environment_key();
}

/// Writes a file under a private name and renames it, so that other processes see all of it or nothing.
Status publish(const fs::path& path, std::string_view text) {
  const fs::path mine = path.string() + fmt::format(".{}", ::getpid());
  INGOT_TRY(write_file(mine, text));
  std::error_code error;
  fs::rename(mine, path, error);
  if (error) return make_error(ErrorKind::Io, fmt::format("cannot rename to {}: {}", path.string(), error.message()));
  return {};
}

Status write_headers(const fs::path& to) {
  if (fs::exists(to / "complete")) return {};
  for (const EmbeddedFile& f : prelude_table()) INGOT_TRY(publish(to / std::string(f.name), f.text));
  for (const EmbeddedFile& f : device_table()) {
    INGOT_TRY(publish(to / fs::path(f.name).filename(), f.text));  // types.cuh includes it by its bare name
  }
  return publish(to / "complete", "");
}

std::string run(const std::string& command, int& status) {
  std::string output;
  FILE* pipe = popen((command + " 2>&1").c_str(), "r");
  if (!pipe) {
    status = -1;
    return "popen failed";
  }
  char buffer[4096];
  while (const size_t n = std::fread(buffer, 1, sizeof buffer, pipe)) output.append(buffer, n);
  status = pclose(pipe);
  return output;
}

}  // namespace

Result<std::string> compile_emulated(const std::string& source) {
  static std::mutex one_at_a_time;
  const std::lock_guard<std::mutex> lock(one_at_a_time);
  const fs::path to = folder();
  const std::string stem = hash_text(source).hex(20);
  const fs::path object = to / (stem + ".so"), text = to / (stem + ".cu");
  if (fs::exists(object)) return object.string();
  INGOT_TRY(write_headers(to));
  INGOT_TRY(publish(text, source));
  const std::string mine = fmt::format("{}.{}", object.string(), ::getpid());
  int status = 0;
  const std::string log = run(
      fmt::format("{} {} -I '{}' -x c++ '{}' -o '{}'", compiler(), kFlags, to.string(), text.string(), mine), status);
  if (status != 0) {
    return make_error(ErrorKind::Internal,
                      fmt::format("the host compiler refuses an emulated kernel ({})", text.string()))
        .add(log);
  }
  std::error_code error;
  fs::rename(mine, object, error);
  if (error) return make_error(ErrorKind::Io, fmt::format("cannot rename to {}: {}", object.string(), error.message()));
  return object.string();
}

}  // namespace ingot::emulation
