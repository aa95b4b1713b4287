// Stable 128-bit content hashes (XXH3): the same bytes give the same hash on every machine and in every build.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace ingot {

struct Hash128 {
  uint64_t high = 0, low = 0;
  bool operator==(const Hash128&) const = default;
  std::string hex() const;                    // 32 digits
  std::string hex(size_t digits) const { return hex().substr(0, digits); }
};
Hash128 hash_bytes(const void* data, size_t size);
inline Hash128 hash_text(std::string_view text) { return hash_bytes(text.data(), text.size()); }
inline uint64_t mix_hash(uint64_t a, uint64_t b) {
  a ^= b + 0x9e3779b97f4a7c15ull + (a << 12) + (a >> 4);
  return a * 0xff51afd7ed558ccdull;
}

}  // namespace ingot
