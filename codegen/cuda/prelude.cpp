#include "codegen/cuda/prelude.h"

#include <string>

namespace ingot {

namespace {

/// Calls `use` with every name in an `#include "..."` line.
template <class Use>
void each_include(std::string_view text, Use use) {
  constexpr std::string_view kMark = "#include \"";
  for (size_t at = text.find(kMark); at != std::string_view::npos; at = text.find(kMark, at)) {
    at += kMark.size();
    use(text.substr(at, text.find('"', at) - at));
  }
}

void collect(std::string_view text, std::vector<EmbeddedFile>& files) {
  each_include(text, [&](std::string_view name) {
    for (const EmbeddedFile& f : files)
      if (f.name == name) return;
    for (const EmbeddedFile& f : prelude_table()) {
      if (f.name != name) continue;
      files.push_back(f);
      collect(f.text, files);
    }
  });
}

}  // namespace

std::string_view prelude_file(std::string_view name) {
  for (const EmbeddedFile& f : prelude_table())
    if (f.name == name) return f.text;
  return {};
}

std::vector<EmbeddedFile> prelude_includes(std::string_view source) {
  std::vector<EmbeddedFile> files;
  collect(source, files);
  return files;
}

}  // namespace ingot
