// libFuzzer target: any bytes, read as a model and imported, give a graph or an Error.
// Any folder of small .onnx files is a corpus to start from.
#include <cstddef>
#include <cstdint>

#include "frontend/onnx_import.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  auto model = ingot::parse_model({reinterpret_cast<const char*>(data), size}, "fuzz");
  if (model) static_cast<void>(ingot::import_graph(model.value()));
  return 0;
}
