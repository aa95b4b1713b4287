// Tensors in files: ONNX test data (.pb), numpy arrays (.npy) and archives of them (.npz). What `ingot run` and the test
// runner read inputs from and write outputs to.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "compiler/support/tensor.h"

namespace ingot {

struct NamedTensor {
  std::string name;  // the member of the archive, or the name inside a .pb; may be empty
  Tensor tensor;
};

/// One tensor from a .npy or .pb file, told apart by their first bytes.
Result<NamedTensor> read_tensor(const std::string& path);
/// All tensors of a .npy, .pb or .npz file.
Result<std::vector<NamedTensor>> read_tensors(const std::string& path);

/// Versions 1 to 3, little endian, C or Fortran order, every real dtype that numpy has.
Result<Tensor> parse_npy(std::string_view bytes);
Result<NamedTensor> parse_tensor_proto(std::string_view bytes);
/// Stored and deflated members, zip64 included.
Result<std::vector<NamedTensor>> parse_npz(std::string_view bytes);

/// Version 1. Types that numpy lacks are widened without loss: bf16 and fp8 to f32, 4-bit integers to 8 bits.
Result<std::string> format_npy(const Tensor& tensor);
Status write_npy(const std::string& path, const Tensor& tensor);
/// ONNX test data, with raw_data.
Status write_tensor_proto(const std::string& path, const Tensor& tensor, const std::string& name = "");

}  // namespace ingot
