#include "codegen/text/code_writer.h"

#include "compiler/support/result.h"

namespace ingot {

void CodeWriter::line(std::string_view text) {
  text_.append(static_cast<size_t>(2 * depth_), ' ');
  text_ += text;
  text_ += '\n';
}

void CodeWriter::directive(std::string_view text) {
  text_ += text;
  text_ += '\n';
}

void CodeWriter::splice(std::string_view text) {
  while (!text.empty()) {
    const size_t end = text.find('\n');
    const std::string_view one = text.substr(0, end);
    if (one.empty()) blank();
    else if (one[0] == '#') directive(one);
    else line(one);
    if (end == std::string_view::npos) break;
    text.remove_prefix(end + 1);
  }
}

CodeWriter::Block CodeWriter::block(std::string_view head, std::string_view label) {
  open(head);
  return Block(*this, label.empty() ? "}" : "}  // " + std::string(label));
}

CodeWriter::Block CodeWriter::type_block(std::string_view head) {
  open(head);
  return Block(*this, "};");
}

void CodeWriter::open(std::string_view head) {
  line(head.empty() ? "{" : std::string(head) + " {");
  ++depth_;
}

void CodeWriter::close(std::string_view text) {
  INGOT_CHECK(depth_ > 0, "close without open");
  --depth_;
  line(text);
}

}  // namespace ingot
