// A text file carried inside the binary; cmake/embed.cmake writes the tables.
#pragma once

#include <string_view>
#include <vector>

namespace ingot {

struct EmbeddedFile {
  std::string_view name;  // as an #include names it: "prelude/types.cuh"
  std::string_view text;
};

}  // namespace ingot
