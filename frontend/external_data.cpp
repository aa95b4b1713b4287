#include "frontend/external_data.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <optional>

#include "frontend/onnx_ir.pb.h"
#include "frontend/text.h"

namespace ingot {
namespace {

struct Range {
  std::string location;
  uint64_t offset = 0;
  std::optional<uint64_t> length;
};

Result<uint64_t> parse_size(const std::string& key, const std::string& text) {
  const auto value = parse_int(text);
  if (!value || *value < 0)
    return invalid(fmt::format("external data: {} is {}, not a number of bytes", key, quote_name(text)));
  return static_cast<uint64_t>(*value);
}

Result<Range> range_of(const onnx::Tensor& tensor) {
  Range range;
  for (const onnx::StringStringEntry& entry : tensor.external_data()) {
    if (entry.key() == "location") range.location = entry.value();
    if (entry.key() == "offset") range.offset = INGOT_TRY(parse_size("offset", entry.value()));
    if (entry.key() == "length") range.length = INGOT_TRY(parse_size("length", entry.value()));
  }
  if (range.location.empty()) return invalid("external data: no location is given");
  return range;
}

/// Refuses paths that are absolute or step upwards, before the file system is asked anything.
Status check_spelling(const std::string& location) {
  if (location.find('\0') != std::string::npos)
    return invalid(fmt::format("external data: the path {} holds a zero byte", quote_name(location)));
  if (location[0] == '/')
    return invalid(fmt::format("external data: the path {} is absolute; it must stay in the model's folder",
                               quote_name(location)));
  for (size_t begin = 0; begin <= location.size();) {
    const size_t end = std::min(location.find('/', begin), location.size());
    if (location.compare(begin, end - begin, "..") == 0)
      return invalid(fmt::format("external data: the path {} leaves the model's folder", quote_name(location)));
    begin = end + 1;
  }
  return {};
}

}  // namespace

Result<std::shared_ptr<const MappedFile>> ExternalData::map(const std::string& location) {
  if (auto it = files_.find(location); it != files_.end()) return it->second;
  INGOT_TRY(check_spelling(location));
  if (folder_.empty())
    return invalid(fmt::format("external data: {} is named, but the model has no folder", quote_name(location)));
  char* resolved = ::realpath((folder_ + "/" + location).c_str(), nullptr);
  if (!resolved) {
    const ErrorKind kind = errno == ENOENT || errno == ENOTDIR ? ErrorKind::NotFound : ErrorKind::Io;
    return make_error(kind, fmt::format("external data: cannot open {} in {}: {}", quote_name(location),
                                        quote_name(folder_), std::strerror(errno)));
  }
  const std::string path = resolved;
  std::free(resolved);
  const std::string jail = folder_ == "/" ? folder_ : folder_ + "/";
  if (path.compare(0, jail.size(), jail) != 0)
    return invalid(fmt::format("external data: {} is a link to {}, outside the model's folder", quote_name(location),
                               quote_name(path)));
  auto file = MappedFile::open_jailed(path);
  if (!file) return std::move(file.error().add(fmt::format("external data {}", quote_name(location))));
  return files_[location] = std::move(file).value();
}

Result<ExternalBytes> ExternalData::find(const onnx::Tensor& tensor, uint64_t needed) {
  const Range range = INGOT_TRY(range_of(tensor));
  const auto file = INGOT_TRY(map(range.location));
  const uint64_t size = file->size();
  if (range.length && *range.length != needed)
    return invalid(
        fmt::format("external data: length is {}, but the tensor's dims need {} bytes", *range.length, needed));
  if (range.offset > size || needed > size - range.offset)
    return invalid(fmt::format("external data: bytes {} to {} are wanted, but {} has only {}", range.offset,
                               range.offset + needed, quote_name(range.location), size));
  return ExternalBytes{file->bytes().substr(range.offset, needed), file};
}

}  // namespace ingot
