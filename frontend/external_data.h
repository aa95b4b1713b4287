// Weights beside the model: files of external data, mapped once each and confined to the model's folder. Used by
// onnx_weights.cpp only.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "frontend/mapped_file.h"

namespace ingot {

namespace onnx {
class Tensor;
}

struct ExternalBytes {
  std::string_view bytes;
  std::shared_ptr<const void> owner;
};

class ExternalData {
 public:
  /// `folder` is resolved; empty: external data is refused.
  explicit ExternalData(std::string folder) : folder_(std::move(folder)) {}

  /// The bytes that a tensor's external_data names, which must be `needed` of them. Error: the path leaves the folder (as
  /// written, or through a link), is no regular file, or the range disagrees with the file or with `needed`.
  Result<ExternalBytes> find(const onnx::Tensor& tensor, uint64_t needed);

 private:
  Result<std::shared_ptr<const MappedFile>> map(const std::string& location);
  std::string folder_;
  std::map<std::string, std::shared_ptr<const MappedFile>> files_;
};

}  // namespace ingot
