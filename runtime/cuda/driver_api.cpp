#include "runtime/cuda/driver_api.h"

#include <dlfcn.h>

#include <fmt/format.h>

namespace ingot::runtime::cuda {

namespace {

ErrorKind kind_of(DriverStatus status) {
  if (status == kErrorOutOfMemory) return ErrorKind::OutOfMemory;
  if (status == kErrorNotSupported) return ErrorKind::Unsupported;
  return ErrorKind::Device;
}

Result<DriverApi> open_driver() {
  void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    return make_error(ErrorKind::NotFound,
                      "no CUDA driver: libcuda.so.1 cannot be opened (install the NVIDIA driver, or use --device cpu)")
        .add(fmt::format("dlopen: {}", dlerror()));
  }
  DriverApi api;
  std::string missing;
  const auto find = [&](const char* symbol) { return dlsym(library, symbol); };
#define INGOT_DRIVER_LOAD(field, symbol, parameters)                       \
  api.field = reinterpret_cast<DriverStatus(*) parameters>(find(#symbol)); \
  if (!api.field) missing += (missing.empty() ? "" : ", ") + std::string(#symbol);
  INGOT_DRIVER_FUNCTIONS(INGOT_DRIVER_LOAD)
#undef INGOT_DRIVER_LOAD
#define INGOT_DRIVER_LOAD(field, symbol, parameters) \
  api.field = reinterpret_cast<DriverStatus(*) parameters>(find(#symbol));
  INGOT_DRIVER_OPTIONAL_FUNCTIONS(INGOT_DRIVER_LOAD)
#undef INGOT_DRIVER_LOAD
  if (!missing.empty()) {
    return make_error(ErrorKind::Unsupported, "the CUDA driver is too old: libcuda.so.1 lacks " + missing);
  }
  if (const DriverStatus status = api.init(0); status != kSuccess) {
    Error e = api.error(status, "cuInit");
    e.add("the driver library is present but finds no usable GPU (--device cpu runs without one)");
    return e;
  }
  return api;
}

}  // namespace

Error DriverApi::error(DriverStatus status, std::string call, SourceLoc where) const {
  const char* name = nullptr;
  const char* text = nullptr;
  if (get_error_name) get_error_name(status, &name);  // both stay null for a status that this driver does not know,
  if (get_error_string) get_error_string(status, &text);  // and with the toolkit's stub library
  return make_error(kind_of(status),
                    fmt::format("CUDA {}: {} ({})", call, text ? text : "unknown error",
                                name ? std::string(name) : fmt::format("status {}", status)),
                    where);
}

Result<const DriverApi*> load_driver() {
  static const Result<DriverApi> driver = open_driver();
  if (!driver) return driver.error();
  return &driver.value();
}

}  // namespace ingot::runtime::cuda
