// Models written, compiled and run inside a test; on every device that needs no GPU.
#pragma once

#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "compiler/driver/session.h"
#include "tests/onnx_build.h"

namespace ingot::test {

/// A model file in a folder that goes with it.
class ModelFile {
 public:
  explicit ModelFile(const onnx::Model& model) {
    std::string pattern = (std::filesystem::temp_directory_path() / "ingot-run-XXXXXX").string();
    folder_ = ::mkdtemp(pattern.data());
    std::ofstream(path(), std::ios::binary) << model.SerializeAsString();
  }
  ~ModelFile() { std::filesystem::remove_all(folder_); }
  std::string path() const { return (folder_ / "model.onnx").string(); }

 private:
  std::filesystem::path folder_;
};

inline Model load(const ModelFile& file, const std::string& device) {
  auto model = Model::load(file.path(), device);
  INFO((model ? "" : model.error().to_string()));
  REQUIRE(model.ok());
  return std::move(model).value();
}
inline std::vector<Tensor> run(const Model& model, const std::vector<Tensor>& inputs) {
  auto outputs = model.run_ordered(inputs);
  INFO((outputs ? "" : outputs.error().to_string()));
  REQUIRE(outputs.ok());
  return std::move(outputs).value();
}
inline Tensor ramp(std::vector<int64_t> dims) {
  Tensor t(DType::F32, std::move(dims));
  for (int64_t i = 0; i < t.count(); ++i) t.set_float(i, static_cast<double>((i * 7) % 23) / 8 - 1);
  return t;
}
inline Tensor number(DType type, int64_t value) {
  Tensor t(type, {});
  t.set_int(0, value);
  return t;
}
inline const char* const kDevices[] = {"interpreter", "cpu"};

}  // namespace ingot::test
