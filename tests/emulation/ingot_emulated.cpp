// `ingot` with one more device: --device emulator runs the CUDA kernels of a model on the host, through the same driver
// table as a GPU. Only test builds have it.
#include "codegen/cuda/cuda_backend.h"
#include "compiler/driver/cli.h"
#include "compiler/driver/devices.h"
#include "tests/emulation/emulator_device.h"

int main(int argc, char** argv) {
  ingot::register_device("emulator", []() -> ingot::Result<ingot::OpenDevice> {
    return ingot::OpenDevice{INGOT_TRY(ingot::emulation::open_emulator_device()), ingot::kSourceTarget};
  });
  return ingot::cli::run_command_line(argc, argv);
}
