// The fixed part of the .ingot file, shared by its writer (engine_save.cpp) and its reader (engine_load.cpp).
#pragma once

#include <cstdint>
#include <cstring>

namespace ingot::runtime {

constexpr char kEngineMagic[8] = {'\x89', 'I', 'N', 'G', 'O', 'T', '\r', '\n'};  // text-mode copies damage it visibly
constexpr uint64_t kSectionAlignment = 64;

enum class SectionKind : uint32_t { Program = 1, Code = 2, Notes = 3, Weights = 4, Folding = 5 };

struct EngineHeader {
  char magic[8];
  uint32_t version;
  uint32_t sections;
  uint64_t file_bytes;
  uint64_t table_hash[2];  // of the section rows
  uint8_t zero[24];
};
static_assert(sizeof(EngineHeader) == 64);

struct SectionRow {
  SectionKind kind;
  uint32_t zero;
  uint64_t offset, size;
  uint64_t hash[2];
  uint8_t pad[24];
};
static_assert(sizeof(SectionRow) == 64);

inline uint64_t align_section(uint64_t n) {
  return (n + kSectionAlignment - 1) / kSectionAlignment * kSectionAlignment;
}

}  // namespace ingot::runtime
