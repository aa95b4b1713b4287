#include "frontend/onnx_model.h"

#include <fmt/format.h>
#include <google/protobuf/arena.h>
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/stubs/logging.h>

#include <climits>
#include <cstdlib>

#include "frontend/mapped_file.h"
#include "frontend/onnx_ir.pb.h"
#include "frontend/text.h"

namespace ingot {
namespace {

namespace pb = google::protobuf;

/// The top-level fields that a byte string holds, by skipping from one to the next: tells a cut file from a foreign one.
struct Outline {
  bool whole = true;  // every field ends inside the bytes
  bool plausible = false;  // begins as an ONNX model does
};

Outline outline_of(std::string_view bytes) {
  Outline outline;
  pb::io::CodedInputStream in(reinterpret_cast<const uint8_t*>(bytes.data()), static_cast<int>(bytes.size()));
  bool first = true;
  while (in.CurrentPosition() < static_cast<int>(bytes.size())) {
    const uint32_t tag = in.ReadTag();
    const uint32_t field = tag >> 3, wire = tag & 7;
    uint64_t number = 0;
    uint32_t length = 0;
    bool ok = field != 0;
    if (wire == 0) ok = ok && in.ReadVarint64(&number);
    else if (wire == 1) ok = ok && in.Skip(8);
    else if (wire == 2) ok = ok && in.ReadVarint32(&length) && length <= INT_MAX && in.Skip(static_cast<int>(length));
    else if (wire == 5) ok = ok && in.Skip(4);
    else ok = false;
    // Writers put ir_version first; a small number under another field would be a coincidence.
    if (first) outline.plausible = tag == 8 && number >= 1 && number < 1000;
    first = false;
    if (!ok) {
      outline.whole = false;
      return outline;
    }
  }
  return outline;
}

Error not_onnx(std::string_view bytes) {
  const Outline outline = outline_of(bytes);
  if (outline.plausible && !outline.whole)
    return invalid(fmt::format("the ONNX file is truncated: its {} bytes end inside a field", bytes.size()));
  if (outline.plausible) return invalid("the ONNX file is damaged: a message inside it cannot be read");
  return invalid("not an ONNX model: the bytes are not a protobuf message of that kind");
}

Status check(const onnx::Model& model) {
  if (!model.has_ir_version() && !model.has_graph())
    return invalid("not an ONNX model: it has neither ir_version nor a graph");
  if (!model.has_ir_version() || model.ir_version() < 1) return invalid("not an ONNX model: ir_version is missing");
  if (!model.has_graph()) return invalid("the ONNX model has no graph");
  return {};
}

Result<std::shared_ptr<const onnx::Model>> parse(std::string_view bytes) {
  if (bytes.empty()) return invalid("the file is empty");
  if (bytes.size() > INT_MAX)
    return unsupported(
        fmt::format("the ONNX file has {} bytes; protobuf messages end at 2 GiB, larger models keep their weights in "
                    "external files",
                    bytes.size()));
  auto arena = std::make_shared<pb::Arena>();
  auto* model = pb::Arena::CreateMessage<onnx::Model>(arena.get());
  const pb::LogSilencer silencer;  // what went wrong is in our Error, not on stderr
  if (!model->ParsePartialFromArray(bytes.data(), static_cast<int>(bytes.size()))) return not_onnx(bytes);
  INGOT_TRY(check(*model));
  return std::shared_ptr<const onnx::Model>(std::move(arena), model);
}

/// The folder of a path with every link resolved: the jail of its external data.
Result<std::string> resolved_folder(const std::string& path) {
  const size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
  char* resolved = ::realpath(folder.c_str(), nullptr);
  if (!resolved) return make_error(ErrorKind::Io, fmt::format("cannot resolve the folder {}", quote_name(folder)));
  std::string result = resolved;
  std::free(resolved);
  return result;
}

}  // namespace

Result<OnnxModel> read_model(const std::string& path) {
  const auto file = INGOT_TRY(MappedFile::open(path));
  auto proto = parse(file->bytes());
  if (!proto) return std::move(proto.error().add("while reading " + path));
  return OnnxModel(std::move(proto).value(), path, INGOT_TRY(resolved_folder(path)));
}

Result<OnnxModel> parse_model(std::string_view bytes, const std::string& name) {
  auto proto = parse(bytes);
  if (!proto) return std::move(proto.error().add("while reading " + name));
  return OnnxModel(std::move(proto).value(), name, "");
}

}  // namespace ingot
