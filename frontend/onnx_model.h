// An ONNX file in memory: the parsed message, where it came from, and its operator sets. First stage of the frontend;
// import_graph (onnx_import.h) turns it into an operator graph.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "compiler/support/result.h"

namespace ingot {

namespace onnx {
class Model;
}

constexpr int kNewestOpset = 28;

class OnnxModel {
 public:
  const onnx::Model& proto() const { return *proto_; }
  /// Keeps the message alive; tensors that point into it hold a copy of this.
  std::shared_ptr<const onnx::Model> owner() const { return proto_; }
  /// The file, or a name for bytes from elsewhere.
  const std::string& path() const { return path_; }
  /// The resolved folder that external data must stay in; empty when the model came from bytes and has none.
  const std::string& folder() const { return folder_; }
  /// A message made in memory, without external data.
  static OnnxModel of_message(std::shared_ptr<const onnx::Model> proto, std::string name) {
    return OnnxModel(std::move(proto), std::move(name), "");
  }

 private:
  friend Result<OnnxModel> read_model(const std::string& path);
  friend Result<OnnxModel> parse_model(std::string_view bytes, const std::string& name);
  OnnxModel(std::shared_ptr<const onnx::Model> proto, std::string path, std::string folder)
      : proto_(std::move(proto)), path_(std::move(path)), folder_(std::move(folder)) {}

  std::shared_ptr<const onnx::Model> proto_;
  std::string path_, folder_;
};

/// Reads a model. Error: missing, empty, truncated, larger than protobuf can read, or not an ONNX model.
Result<OnnxModel> read_model(const std::string& path);
/// Likewise from bytes in memory, without external data.
Result<OnnxModel> parse_model(std::string_view bytes, const std::string& name);

}  // namespace ingot
