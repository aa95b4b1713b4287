// Reads zip archives in memory, as far as .npz files need: stored and deflated members, zip64. Used by tensor_file.cpp.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/support/result.h"

namespace ingot {

struct ZipMember {
  std::string name;
  uint16_t method = 0;
  uint32_t crc = 0;
  uint64_t packed_size = 0, size = 0, header_offset = 0;
};

/// The members, from the central directory at the end of the archive.
Result<std::vector<ZipMember>> list_zip(std::string_view archive);
/// A member's bytes, with its checksum verified.
Result<std::string> extract_zip(std::string_view archive, const ZipMember& member);

}  // namespace ingot
