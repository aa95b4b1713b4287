#include "frontend/zip_reader.h"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>

#include "frontend/text.h"

namespace ingot {
namespace {

constexpr uint32_t kLocal = 0x04034b50, kCentral = 0x02014b50, kEnd = 0x06054b50, kEnd64 = 0x06064b50,
                   kLocator64 = 0x07064b50;
constexpr size_t kLocalSize = 30, kCentralSize = 46, kEndSize = 22, kEnd64Size = 56, kLocator64Size = 20;
constexpr uint16_t kZip64Extra = 1, kStored = 0, kDeflated = 8, kEncryptedFlag = 1;
// Deflate cannot pack better than about 1032 to 1; a member that claims more is not genuine.
constexpr uint64_t kBestRatio = 1040;

/// Little-endian integers at checked positions; anything outside reads as 0 and is remembered.
class ByteReader {
 public:
  explicit ByteReader(std::string_view bytes) : bytes_(bytes) {}
  template <class T>
  T get(uint64_t at) {
    if (at > bytes_.size() || sizeof(T) > bytes_.size() - at) {
      failed_ = true;
      return 0;
    }
    uint64_t value = 0;
    for (size_t i = 0; i < sizeof(T); ++i) value |= uint64_t{static_cast<uint8_t>(bytes_[at + i])} << (8 * i);
    return static_cast<T>(value);
  }
  std::string_view text(uint64_t at, uint64_t length) {
    if (at > bytes_.size() || length > bytes_.size() - at) {
      failed_ = true;
      return {};
    }
    return bytes_.substr(at, length);
  }
  bool failed() const { return failed_; }

 private:
  std::string_view bytes_;
  bool failed_ = false;
};

Error damaged() { return invalid("the zip archive is damaged or truncated"); }

struct Directory {
  uint64_t offset = 0, entries = 0;
};

Result<Directory> find_directory(std::string_view archive) {
  if (archive.size() < kEndSize) return damaged();
  ByteReader in(archive);
  const size_t lowest = archive.size() - std::min<size_t>(archive.size(), kEndSize + UINT16_MAX);
  size_t at = archive.size() - kEndSize;
  while (in.get<uint32_t>(at) != kEnd) {
    if (at == lowest) return damaged();
    --at;
  }
  Directory directory{in.get<uint32_t>(at + 16), in.get<uint16_t>(at + 10)};
  if (at >= kLocator64Size && in.get<uint32_t>(at - kLocator64Size) == kLocator64) {
    const auto end64 = in.get<uint64_t>(at - kLocator64Size + 8);
    if (end64 > archive.size() || archive.size() - end64 < kEnd64Size || in.get<uint32_t>(end64) != kEnd64)
      return damaged();
    directory = {in.get<uint64_t>(end64 + 48), in.get<uint64_t>(end64 + 32)};
  }
  return directory;
}

/// Sizes and offsets that do not fit in 32 bits stand in an extra field, in this order, only those that are needed.
void apply_zip64(std::string_view extra, ZipMember& member) {
  ByteReader in(extra);
  for (uint64_t at = 0; at + 4 <= extra.size();) {
    const auto id = in.get<uint16_t>(at), length = in.get<uint16_t>(at + 2);
    if (id == kZip64Extra) {
      uint64_t field = at + 4;
      for (uint64_t* value : {&member.size, &member.packed_size, &member.header_offset})
        if (*value == UINT32_MAX) {
          *value = in.get<uint64_t>(field);
          field += 8;
        }
    }
    at += 4 + uint64_t{length};
  }
}

Result<std::string> inflate_member(std::string_view packed, uint64_t size) {
  std::string out(size, '\0');
  z_stream stream{};
  if (inflateInit2(&stream, -MAX_WBITS) != Z_OK) return make_error(ErrorKind::Internal, "zlib cannot start");
  size_t consumed = 0, produced = 0;
  int code = Z_OK;
  constexpr size_t kStep = 1 << 30;  // zlib counts in 32 bits
  while (code == Z_OK) {
    const size_t in = std::min(kStep, packed.size() - consumed), room = std::min(kStep, out.size() - produced);
    stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(packed.data() + consumed));
    stream.avail_in = static_cast<uInt>(in);
    stream.next_out = reinterpret_cast<Bytef*>(out.data() + produced);
    stream.avail_out = static_cast<uInt>(room);
    code = inflate(&stream, Z_NO_FLUSH);
    consumed += in - stream.avail_in;
    produced += room - stream.avail_out;
  }
  inflateEnd(&stream);
  if (code != Z_STREAM_END || produced != size) return damaged();
  return out;
}

uint32_t checksum(std::string_view bytes) {
  uLong crc = crc32(0, nullptr, 0);
  for (size_t at = 0; at < bytes.size(); at += 1 << 30)
    crc = crc32(crc, reinterpret_cast<const Bytef*>(bytes.data() + at),
                static_cast<uInt>(std::min<size_t>(1 << 30, bytes.size() - at)));
  return static_cast<uint32_t>(crc);
}

}  // namespace

Result<std::vector<ZipMember>> list_zip(std::string_view archive) {
  const Directory directory = INGOT_TRY(find_directory(archive));
  ByteReader in(archive);
  std::vector<ZipMember> members;
  uint64_t at = directory.offset;
  for (uint64_t i = 0; i < directory.entries; ++i) {
    if (in.get<uint32_t>(at) != kCentral) return damaged();
    if (in.get<uint16_t>(at + 8) & kEncryptedFlag) return unsupported("the zip archive is encrypted");
    ZipMember member;
    member.method = in.get<uint16_t>(at + 10);
    member.crc = in.get<uint32_t>(at + 16);
    member.packed_size = in.get<uint32_t>(at + 20);
    member.size = in.get<uint32_t>(at + 24);
    member.header_offset = in.get<uint32_t>(at + 42);
    const auto name = in.get<uint16_t>(at + 28), extra = in.get<uint16_t>(at + 30), comment = in.get<uint16_t>(at + 32);
    member.name = in.text(at + kCentralSize, name);
    apply_zip64(in.text(at + kCentralSize + name, extra), member);
    if (in.failed()) return damaged();
    members.push_back(std::move(member));
    at += kCentralSize + uint64_t{name} + extra + comment;
  }
  return members;
}

Result<std::string> extract_zip(std::string_view archive, const ZipMember& member) {
  ByteReader in(archive);
  const uint64_t at = member.header_offset;
  if (in.get<uint32_t>(at) != kLocal) return damaged();
  const uint64_t begin = at + kLocalSize + in.get<uint16_t>(at + 26) + in.get<uint16_t>(at + 28);
  const std::string_view packed = in.text(begin, member.packed_size);
  if (in.failed()) return damaged();
  std::string bytes;
  if (member.method == kStored) {
    if (member.size != member.packed_size) return damaged();
    bytes = packed;
  } else if (member.method == kDeflated) {
    if (member.size / kBestRatio > member.packed_size) return damaged();
    bytes = INGOT_TRY(inflate_member(packed, member.size));
  } else {
    return unsupported(fmt::format("zip compression method {} is not supported", member.method));
  }
  if (checksum(bytes) != member.crc)
    return invalid(fmt::format("the checksum of {} does not match", quote_name(member.name)));
  return bytes;
}

}  // namespace ingot
