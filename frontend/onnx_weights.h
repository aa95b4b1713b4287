// TensorProto -> Tensor: initialisers, attribute tensors and test data, from typed fields, raw bytes or external files.
// Large payloads are referenced where they lie (the parsed message, the mapped file), not copied.
#pragma once

#include <memory>
#include <string>

#include "compiler/ops/onnx_node.h"
#include "compiler/support/tensor.h"
#include "frontend/external_data.h"

namespace ingot {

namespace onnx {
class Tensor;
class SparseTensor;
}  // namespace onnx

class WeightLoader {
 public:
  /// `owner` keeps the messages alive that load() is given; `folder` is where external data may lie.
  WeightLoader(std::shared_ptr<const void> owner, std::string folder)
      : owner_(std::move(owner)), external_(std::move(folder)) {}

  /// Sizes are checked against the payload before anything is allocated. Error: the payload and the dims disagree.
  Result<TensorPtr> load(const onnx::Tensor& tensor);
  /// The dense form. Error: bad indices, or a dense form out of all proportion to the values.
  Result<TensorPtr> load(const onnx::SparseTensor& sparse);

 private:
  Result<TensorPtr> load_raw(const onnx::Tensor& tensor, DType type, std::vector<int64_t> dims, int64_t count);
  std::shared_ptr<const void> owner_;
  ExternalData external_;
};

}  // namespace ingot
