#include "codegen/cuda/nvrtc.h"

#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>
#include <regex>

#include <fmt/format.h>

#include "codegen/cuda/prelude.h"

namespace ingot {

namespace {

using Program = struct ProgramOpaque*;  // nvrtcProgram
constexpr int kSuccess = 0;
constexpr int kOptionError = 5;         // NVRTC_ERROR_INVALID_OPTION: an architecture it does not know

const char* const kOptions[] = {"--std=c++17", "--device-as-default-execution-space", "--ptxas-options=-v"};

struct Nvrtc {
  int (*version)(int*, int*) = nullptr;
  const char* (*error_string)(int) = nullptr;
  int (*create)(Program*, const char*, const char*, int, const char* const*, const char* const*) = nullptr;
  int (*destroy)(Program*) = nullptr;
  int (*compile)(Program, int, const char* const*) = nullptr;
  int (*log_size)(Program, size_t*) = nullptr;
  int (*log)(Program, char*) = nullptr;
  int (*cubin_size)(Program, size_t*) = nullptr;
  int (*cubin)(Program, char*) = nullptr;
  int (*ptx_size)(Program, size_t*) = nullptr;
  int (*ptx)(Program, char*) = nullptr;
};

/// libnvrtc has no RUNPATH: opened from outside the loader's path it finds its builtins only if they are open already.
void open_builtins(const std::filesystem::path& library) {
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(library.parent_path(), ignored)) {
    const std::string name = entry.path().filename().string();
    const bool alternative = name.find(".alt.") != std::string::npos;  // for an older C++ ABI
    if (name.rfind("libnvrtc-builtins.so.", 0) == 0 && !alternative)
      dlopen(entry.path().c_str(), RTLD_NOW | RTLD_GLOBAL);
  }
}

std::vector<std::filesystem::path> candidates() {
  std::vector<std::filesystem::path> paths;
  const char* const names[] = {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"};
  for (const char* variable : {"INGOT_NVRTC", "CUDA_HOME", "CUDA_PATH"}) {
    const char* value = std::getenv(variable);
    if (!value || !*value) continue;
    if (std::filesystem::is_regular_file(value)) paths.emplace_back(value);
    for (const char* name : names)
      for (const char* folder : {"lib64", "lib", "."}) paths.push_back(std::filesystem::path(value) / folder / name);
  }
  for (const char* name : names) paths.emplace_back(name);  // the loader's own path
  for (const char* name : names) paths.push_back(std::filesystem::path("/usr/local/cuda/lib64") / name);
  return paths;
}

void* open_library(std::string& tried) {
  for (const auto& path : candidates()) {
    if (path.has_parent_path()) {
      if (!std::filesystem::exists(path)) continue;
      open_builtins(std::filesystem::weakly_canonical(path));
    }
    if (void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) return library;
    tried += fmt::format("{}{}", tried.empty() ? "" : ", ", path.string());
  }
  return nullptr;
}

Result<Nvrtc> open_nvrtc() {
  std::string tried;
  void* library = open_library(tried);
  if (!library) {
    return make_error(ErrorKind::NotFound,
                      "no NVRTC: libnvrtc.so cannot be opened, so CUDA kernels cannot be compiled here")
        .add("tried " + tried + "; set CUDA_HOME to a CUDA toolkit, or INGOT_NVRTC to the library");
  }
  Nvrtc n;
  const auto load = [&](auto& function, const char* symbol) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, symbol));
    return function != nullptr;
  };
  const bool ok = load(n.version, "nvrtcVersion") && load(n.error_string, "nvrtcGetErrorString") &&
                  load(n.create, "nvrtcCreateProgram") && load(n.destroy, "nvrtcDestroyProgram") &&
                  load(n.compile, "nvrtcCompileProgram") && load(n.log_size, "nvrtcGetProgramLogSize") &&
                  load(n.log, "nvrtcGetProgramLog") && load(n.cubin_size, "nvrtcGetCUBINSize") &&
                  load(n.cubin, "nvrtcGetCUBIN") && load(n.ptx_size, "nvrtcGetPTXSize") && load(n.ptx, "nvrtcGetPTX");
  if (!ok) return unsupported("libnvrtc.so is too old: CUDA 12 or later is needed");
  return n;
}

Result<const Nvrtc*> nvrtc() {
  static const Result<Nvrtc> library = open_nvrtc();
  if (!library) return library.error();
  return &library.value();
}

/// Destroys the program with the scope.
struct ProgramGuard {
  const Nvrtc& n;
  Program program = nullptr;
  ~ProgramGuard() {
    if (program) n.destroy(&program);
  }
};

std::string read_log(const Nvrtc& n, Program program) {
  size_t size = 0;
  if (n.log_size(program, &size) != kSuccess || size <= 1) return {};
  std::string log(size, '\0');
  n.log(program, log.data());
  log.resize(size - 1);
  return log;
}

void parse_report(CompiledKernel& kernel) {
  static const std::regex kRegisters("Used ([0-9]+) registers");
  static const std::regex kSpills(
      "([0-9]+) bytes stack frame, ([0-9]+) bytes spill stores, ([0-9]+) bytes spill loads");
  std::smatch m;
  if (std::regex_search(kernel.log, m, kRegisters)) kernel.registers = std::stoi(m[1]);
  if (std::regex_search(kernel.log, m, kSpills)) {
    kernel.stack_bytes = std::stoi(m[1]);
    kernel.spill_bytes = std::stoi(m[2]) + std::stoi(m[3]);
  }
}

/// "--gpu-architecture=sm_90a", or "compute_75" for "ptx_75".
std::string architecture_option(const std::string& target, bool ptx) {
  return "--gpu-architecture=" + (ptx ? "compute_" + target.substr(4) : target);
}

Error compile_error(const Nvrtc& n, int status, const std::string& name, const std::string& target, std::string log) {
  if (status == kOptionError) {
    Error e = unsupported(fmt::format("this NVRTC does not know the target {}", target));
    if (!log.empty()) e.add(log);
    return e;
  }
  return make_error(ErrorKind::Internal, fmt::format("NVRTC refuses {}: {}", name, n.error_string(status)))
      .add(std::move(log));
}

}  // namespace

Result<CompiledKernel> compile_nvrtc(const std::string& source, const std::string& name, const std::string& target,
                                     std::span<const std::string> extra_options) {
  const Nvrtc& n = *INGOT_TRY(nvrtc());
  const bool ptx = target.rfind("ptx_", 0) == 0;
  if (!ptx && target.rfind("sm_", 0) != 0) return invalid("not a CUDA target: '" + target + "'");

  const std::vector<EmbeddedFile> files = prelude_includes(source);
  std::vector<std::string> texts;  // zero-terminated copies
  for (const EmbeddedFile& f : files) texts.emplace_back(f.text);
  std::vector<const char*> headers, names;
  std::vector<std::string> file_names;
  for (const EmbeddedFile& f : files) file_names.emplace_back(f.name);
  for (size_t i = 0; i < files.size(); ++i) {
    headers.push_back(texts[i].c_str());
    names.push_back(file_names[i].c_str());
  }
  ProgramGuard guard{n};
  const std::string file = name + ".cu";
  int status = n.create(&guard.program, source.c_str(), file.c_str(), static_cast<int>(headers.size()), headers.data(),
                        names.data());
  if (status != kSuccess)
    return make_error(ErrorKind::Internal, fmt::format("nvrtcCreateProgram: {}", n.error_string(status)));

  std::vector<std::string> options{architecture_option(target, ptx)};
  options.insert(options.end(), std::begin(kOptions), std::end(kOptions));
  options.insert(options.end(), extra_options.begin(), extra_options.end());
  std::vector<const char*> arguments;
  for (const std::string& o : options) arguments.push_back(o.c_str());
  status = n.compile(guard.program, static_cast<int>(arguments.size()), arguments.data());
  CompiledKernel out;
  out.target = target;
  out.log = read_log(n, guard.program);
  if (status != kSuccess) return compile_error(n, status, name, target, out.log);

  size_t size = 0;
  status = ptx ? n.ptx_size(guard.program, &size) : n.cubin_size(guard.program, &size);
  out.code.resize(size);
  if (status == kSuccess) {
    char* to = reinterpret_cast<char*>(out.code.data());
    status = ptx ? n.ptx(guard.program, to) : n.cubin(guard.program, to);
  }
  if (status != kSuccess || size == 0)
    return make_error(ErrorKind::Internal, fmt::format("NVRTC gives no code for {}", target));
  parse_report(out);
  return out;
}

Result<std::string> nvrtc_version() {
  const Nvrtc& n = *INGOT_TRY(nvrtc());
  int major = 0, minor = 0;
  if (const int status = n.version(&major, &minor); status != kSuccess) {
    return make_error(ErrorKind::Internal, fmt::format("nvrtcVersion: {}", n.error_string(status)));
  }
  return fmt::format("{}.{}", major, minor);
}

std::string nvrtc_options() {
  std::string all;
  for (const char* o : kOptions) all += (all.empty() ? "" : " ") + std::string(o);
  return all;
}

}  // namespace ingot
