// CodeWriter: indented text, line by line. Printers of C-like text write through it; there is no template language.
#pragma once

#include <string>
#include <string_view>

namespace ingot {

class CodeWriter {
 public:
  void line(std::string_view text);
  void blank() { text_ += '\n'; }
  /// A preprocessor line: not indented.
  void directive(std::string_view text);
  void comment(std::string_view text) { line("// " + std::string(text)); }
  /// Lines of other text at the current indentation.
  void splice(std::string_view text);

  /// Opens "head {"; the destructor of the result writes "}", with the label behind it when there is one.
  class Block {
   public:
    Block(CodeWriter& writer, std::string close) : writer_(&writer), close_(std::move(close)) {}
    Block(Block&& other) noexcept : writer_(other.writer_), close_(std::move(other.close_)) { other.writer_ = nullptr; }
    Block(const Block&) = delete;
    ~Block() {
      if (writer_) writer_->close(close_);
    }

   private:
    CodeWriter* writer_;
    std::string close_;
  };
  [[nodiscard]] Block block(std::string_view head, std::string_view label = {});
  /// A block closed by "};".
  [[nodiscard]] Block type_block(std::string_view head);

  /// Explicit forms, where a C++ scope does not match the block.
  void open(std::string_view head);
  void close(std::string_view text = "}");
  void open_silently() { ++depth_; }  // after close("} else {")

  const std::string& text() const { return text_; }
  int columns_left(int width = 110) const { return width - 2 * depth_; }

 private:
  std::string text_;
  int depth_ = 0;
};

}  // namespace ingot
