// Ranges on the profilers' time line: one around a run and one around each launch, closed again.
#include "runtime/nvtx.h"

#include <dlfcn.h>

#include <cstdlib>

#include "catch2/catch.hpp"
#include "runtime/cpu/cpu_device.h"
#include "runtime/executor.h"
#include "tests/program_builder.h"

using namespace ingot;
using namespace ingot::runtime;

TEST_CASE("a run and its launches are ranges", "[nvtx]") {
  const char* path = std::getenv("INGOT_NVTX_LIBRARY");
  REQUIRE(path);
  REQUIRE(nvtx_active());
  void* library = dlopen(path, RTLD_NOW);
  REQUIRE(library);
  const auto count = [&](const char* name) { return *static_cast<int*>(dlsym(library, name)); };
  const auto nothing = [](void* const*, const int64_t*, int64_t, int64_t, void*) {};
  auto device =
      std::make_shared<CpuDevice>([=](const KernelInfo&) -> Result<CpuCode> { return CpuCode{nothing, nullptr}; }, 1);
  auto program = testing::sums_program(5);
  program->model_name = "model";
  auto session = Session::create(Engine::create(program, device).value()).value();
  REQUIRE(session->run({Tensor(DType::F32, {2, 3})}).ok());
  CHECK(count("pushed") == 6);
  CHECK(count("popped") == 6);
  CHECK(count("depth") == 0);
  CHECK(count("deepest") == 2);
}
