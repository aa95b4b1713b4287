// Model in, tensors out: the whole C++ API in twenty lines.
//   build/release/bin/compile_and_run examples/digits/digits.onnx examples/digits/images/images.npy
#include <cstdio>

#include "compiler/driver/session.h"

int main(int argc, char** argv) {
  if (argc < 3) return std::fprintf(stderr, "usage: compile_and_run MODEL INPUT.npy\n"), 2;
  auto model = ingot::Model::load(argv[1]);  // compiles for a GPU if there is one, else for this CPU
  if (!model) return std::fprintf(stderr, "%s\n", model.error().to_string().c_str()), 2;
  auto input = ingot::read_tensor(argv[2]);
  if (!input) return std::fprintf(stderr, "%s\n", input.error().to_string().c_str()), 2;
  auto outputs = model->run({{model->inputs()[0].name, input->tensor}});
  if (!outputs) return std::fprintf(stderr, "%s\n", outputs.error().to_string().c_str()), 2;
  for (const ingot::NamedTensor& out : *outputs) {
    std::printf("%s %s on %s\n", out.name.c_str(), ingot::describe(out.tensor.type(), out.tensor.dims()).c_str(), model->device_name().c_str());
    for (int64_t i = 0; i < std::min<int64_t>(out.tensor.count(), 10); ++i) std::printf(" %g", out.tensor.float_at(i));
    std::printf("\n");
  }
}
