#include "codegen/llvm/orc_jit.h"

#include <fmt/format.h>
#include <llvm/ExecutionEngine/Orc/LLJIT.h>
#include <llvm/IR/Module.h>
#include <llvm/Support/MemoryBuffer.h>
#include <llvm/TargetParser/Host.h>

#include <atomic>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <mutex>

#include "codegen/llvm/object_compiler.h"
#include "compiler/support/dtype.h"

namespace ingot {
namespace {

std::string message_of(llvm::Error error) { return llvm::toString(std::move(error)); }

void* allocate(int64_t bytes) {
  void* p = std::aligned_alloc(64, static_cast<size_t>(bytes + 127) / 64 * 64);
  INGOT_CHECK(p != nullptr, fmt::format("out of host memory for {} bytes of a kernel's scratch", bytes));
  return p;
}

// What LLVM calls for f16 on processors without conversion instructions.
float extend_half(_Float16 half) { return f16_to_float(std::bit_cast<uint16_t>(half)); }
_Float16 truncate_to_half(float value) { return std::bit_cast<_Float16>(float_to_f16(value)); }

/// What generated code may call. Nothing else of the process is visible to it.
struct HostSymbol {
  const char* name;
  void* address;
};
template <class F>
void* address_of(F* f) {
  return reinterpret_cast<void*>(f);
}
using F1 = float(float);
using D1 = double(double);
using F2 = float(float, float);
using D2 = double(double, double);
#define INGOT_HOST_1(name) \
  {#name, address_of<D1>(::name)}, { #name "f", address_of<F1>(::name##f) }
#define INGOT_HOST_2(name) \
  {#name, address_of<D2>(::name)}, { #name "f", address_of<F2>(::name##f) }

const std::vector<HostSymbol>& host_symbols() {
  static const std::vector<HostSymbol> symbols = {
      INGOT_HOST_1(exp),
      INGOT_HOST_1(log),
      INGOT_HOST_1(tanh),
      INGOT_HOST_1(erf),
      INGOT_HOST_1(sin),
      INGOT_HOST_1(cos),
      INGOT_HOST_1(tan),
      INGOT_HOST_1(asin),
      INGOT_HOST_1(acos),
      INGOT_HOST_1(atan),
      INGOT_HOST_1(sinh),
      INGOT_HOST_1(cosh),
      INGOT_HOST_1(asinh),
      INGOT_HOST_1(acosh),
      INGOT_HOST_1(atanh),
      INGOT_HOST_1(log1p),
      INGOT_HOST_1(floor),
      INGOT_HOST_1(ceil),
      INGOT_HOST_1(nearbyint),
      INGOT_HOST_2(pow),
      INGOT_HOST_2(fmod),
      {"fma", address_of<double(double, double, double)>(::fma)},
      {"fmaf", address_of<float(float, float, float)>(::fmaf)},
      {"memcpy", address_of(&::memcpy)},
      {"memset", address_of(&::memset)},
      {"memmove", address_of(&::memmove)},
      {"ingot_allocate", address_of(&allocate)},
      {"ingot_free", address_of(&::free)},
      {"__extendhfsf2", address_of(&extend_half)},
      {"__truncsfhf2", address_of(&truncate_to_half)},
  };
  return symbols;
}
#undef INGOT_HOST_1
#undef INGOT_HOST_2

}  // namespace

struct OrcJit::State {
  std::unique_ptr<llvm::orc::LLJIT> jit;
  llvm::orc::JITDylib* host = nullptr;
  std::mutex mutex;  // of library creation and removal
  std::atomic<uint64_t> libraries{0};
};

namespace {

/// Removes a library from the JIT when nothing uses its code any more.
template <class State>
std::shared_ptr<const void> library_owner(std::shared_ptr<State> state, llvm::orc::JITDylib* library) {
  return std::shared_ptr<const void>(library, [state](const void* p) {
    auto* dylib = static_cast<llvm::orc::JITDylib*>(const_cast<void*>(p));
    std::lock_guard<std::mutex> lock(state->mutex);
    llvm::consumeError(state->jit->getExecutionSession().removeJITDylib(*dylib));
  });
}

}  // namespace

OrcJit::OrcJit(std::shared_ptr<State> state) : state_(std::move(state)) {}
OrcJit::~OrcJit() = default;

Result<std::shared_ptr<OrcJit>> OrcJit::create() {
  cpu::initialize_target();
  auto jit = llvm::orc::LLJITBuilder().create();
  if (!jit) return make_error(ErrorKind::Internal, "LLVM cannot start its JIT: " + message_of(jit.takeError()));
  auto state = std::make_shared<State>();
  state->jit = std::move(*jit);
  auto library = state->jit->createJITDylib("host");
  if (!library) return make_error(ErrorKind::Internal, message_of(library.takeError()));
  state->host = &*library;
  llvm::orc::SymbolMap map;
  for (const HostSymbol& s : host_symbols())
    map[state->jit->mangleAndIntern(s.name)] = {llvm::orc::ExecutorAddr::fromPtr(s.address),
                                                llvm::JITSymbolFlags::Exported | llvm::JITSymbolFlags::Callable};
  if (auto error = state->host->define(llvm::orc::absoluteSymbols(std::move(map))))
    return make_error(ErrorKind::Internal, message_of(std::move(error)));
  return std::shared_ptr<OrcJit>(new OrcJit(std::move(state)));
}

Result<runtime::CpuCode> OrcJit::load(const std::vector<uint8_t>& object, const std::string& function) {
  const auto failed = [&](llvm::Error error) {
    return make_error(ErrorKind::Invalid,
                      fmt::format("the CPU object of {} cannot be linked: {}", function, message_of(std::move(error))));
  };
  llvm::orc::JITDylib* library = nullptr;
  {
    std::lock_guard<std::mutex> lock(state_->mutex);
    auto made = state_->jit->createJITDylib(fmt::format("{}#{}", function, ++state_->libraries));
    if (!made) return failed(made.takeError());
    library = &*made;
    library->setLinkOrder({{state_->host, llvm::orc::JITDylibLookupFlags::MatchExportedSymbolsOnly}},
                          /*LinkAgainstThisJITDylibFirst=*/true);
  }
  runtime::CpuCode code;
  code.owner = library_owner(state_, library);
  const llvm::StringRef bytes(reinterpret_cast<const char*>(object.data()), object.size());
  if (auto error = state_->jit->addObjectFile(*library, llvm::MemoryBuffer::getMemBufferCopy(bytes, function)))
    return failed(std::move(error));
  auto address = state_->jit->lookup(*library, function);
  if (!address) return failed(address.takeError());
  code.function = address->toPtr<void(void* const*, const int64_t*, int64_t, int64_t, void*)>();
  return code;
}

Result<runtime::CpuLoader> make_cpu_loader() {
  auto jit = INGOT_TRY(OrcJit::create());
  return runtime::CpuLoader([jit](const runtime::KernelInfo& kernel) -> Result<runtime::CpuCode> {
    std::string reason = "has no CPU code";
    for (const runtime::KernelBinary& b : kernel.binaries) {
      if (!runtime::is_cpu_target(b.target)) continue;
      const std::string missing = cpu::missing_features(b.code);
      if (missing.empty()) {
        auto code = INGOT_TRY(jit->load(b.code, kernel.name));
        code.owner = std::make_shared<std::pair<std::shared_ptr<OrcJit>, std::shared_ptr<const void>>>(jit, code.owner);
        return code;
      }
      reason = fmt::format("was compiled for a CPU with {}, which this one lacks", missing);
    }
    return unsupported(fmt::format("kernel {} {}", kernel.name, reason));
  });
}

}  // namespace ingot
