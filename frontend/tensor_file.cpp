#include "frontend/tensor_file.h"

#include <fmt/format.h>
#include <google/protobuf/stubs/logging.h>

#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstring>

#include "frontend/mapped_file.h"
#include "frontend/onnx_ir.pb.h"
#include "frontend/onnx_weights.h"
#include "frontend/text.h"
#include "frontend/zip_reader.h"

namespace ingot {
namespace {

constexpr std::string_view kNpyMagic = "\x93NUMPY";
constexpr std::string_view kZipMagic = "PK";

template <class T>
Result<T> with_file(Result<T> result, const std::string& path) {
  if (!result) return std::move(result.error().add("while reading " + path));
  return result;
}

Status write_file(const std::string& path, std::string_view bytes) {
  auto failed = [&path] {
    return make_error(ErrorKind::Io, fmt::format("cannot write {}: {}", quote_name(path), std::strerror(errno)));
  };
  std::FILE* file = std::fopen(path.c_str(), "wb");
  if (!file) return failed();
  const bool written = std::fwrite(bytes.data(), 1, bytes.size(), file) == bytes.size();
  if (std::fclose(file) != 0 || !written) return failed();
  return {};
}

Result<NamedTensor> parse_one(std::string_view bytes) {
  if (bytes.empty()) return invalid("the file is empty");
  if (bytes.starts_with(kNpyMagic)) return NamedTensor{"", INGOT_TRY(parse_npy(bytes))};
  if (bytes.starts_with(kZipMagic)) return invalid("a .npz archive holds several tensors, but one is wanted");
  return parse_tensor_proto(bytes);
}

Result<std::vector<NamedTensor>> parse_all(std::string_view bytes) {
  if (bytes.starts_with(kZipMagic)) return parse_npz(bytes);
  std::vector<NamedTensor> one;
  one.push_back(INGOT_TRY(parse_one(bytes)));
  return one;
}

}  // namespace

Result<NamedTensor> parse_tensor_proto(std::string_view bytes) {
  const google::protobuf::LogSilencer silencer;
  auto message = std::make_shared<onnx::Tensor>();
  if (bytes.size() > INT_MAX || !message->ParsePartialFromArray(bytes.data(), static_cast<int>(bytes.size())))
    return invalid("not a tensor file: neither .npy, .npz nor an ONNX TensorProto");
  if (message->has_segment())  // where the message of a sequence or optional keeps its elements
    return unsupported("the file holds a sequence or an optional, not a tensor");
  WeightLoader loader(message, "");
  const TensorPtr tensor = INGOT_TRY(loader.load(*message));
  return NamedTensor{message->name(), *tensor};
}

Result<std::vector<NamedTensor>> parse_npz(std::string_view bytes) {
  std::vector<NamedTensor> tensors;
  for (const ZipMember& member : INGOT_TRY(list_zip(bytes))) {
    std::string name = member.name;
    if (name.ends_with(".npy")) name.resize(name.size() - 4);
    auto read = [&]() -> Result<Tensor> { return parse_npy(INGOT_TRY(extract_zip(bytes, member))); };
    auto tensor = read();
    if (!tensor) return std::move(tensor.error().add(fmt::format("in archive member {}", quote_name(member.name))));
    tensors.push_back({std::move(name), std::move(tensor).value()});
  }
  return tensors;
}

Result<NamedTensor> read_tensor(const std::string& path) {
  const auto file = INGOT_TRY(MappedFile::open(path));
  return with_file(parse_one(file->bytes()), path);
}

Result<std::vector<NamedTensor>> read_tensors(const std::string& path) {
  const auto file = INGOT_TRY(MappedFile::open(path));
  return with_file(parse_all(file->bytes()), path);
}

Status write_npy(const std::string& path, const Tensor& tensor) {
  return write_file(path, INGOT_TRY(format_npy(tensor)));
}

Status write_tensor_proto(const std::string& path, const Tensor& tensor, const std::string& name) {
  onnx::Tensor message;
  if (!name.empty()) message.set_name(name);
  for (int64_t d : tensor.dims()) message.add_dims(d);
  message.set_data_type(dtype_to_onnx(tensor.type()));
  std::string& raw = *message.mutable_raw_data();
  raw.assign(tensor.as<char>(), tensor.bytes());
  if (is_packed(tensor.type())) {
    const auto bits = static_cast<size_t>(packed_bits(tensor.type())), per_byte = 8 / bits;
    std::string packed((raw.size() + per_byte - 1) / per_byte, '\0');
    for (size_t i = 0; i < raw.size(); ++i)
      packed[i / per_byte] |= static_cast<char>((raw[i] & ((1 << bits) - 1)) << (i % per_byte * bits));
    raw = std::move(packed);
  }
  std::string bytes;
  if (tensor.bytes() > INT_MAX || !message.SerializeToString(&bytes))
    return unsupported(fmt::format("{} is too large for an ONNX tensor file", describe(tensor.type(), tensor.dims())));
  return write_file(path, bytes);
}

}  // namespace ingot
