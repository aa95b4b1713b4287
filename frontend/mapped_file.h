// A file mapped read-only into memory. What models, external weights and tensor files are read through.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "compiler/support/result.h"

namespace ingot {

class MappedFile {
 public:
  /// Maps a regular file. Error: it is missing, is no regular file, or cannot be read.
  static Result<std::shared_ptr<const MappedFile>> open(const std::string& path);
  /// Likewise for a path that is already resolved: a link in its last place, or a file with several hard links, is
  /// refused, since either could stand for a file elsewhere.
  static Result<std::shared_ptr<const MappedFile>> open_jailed(const std::string& path);

  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  const char* data() const { return data_; }
  size_t size() const { return size_; }
  std::string_view bytes() const { return {data_, size_}; }

 private:
  MappedFile(const char* data, size_t size) : data_(data), size_(size) {}
  static Result<std::shared_ptr<const MappedFile>> map(const std::string& path, bool jailed);
  const char* data_;
  size_t size_;
};

}  // namespace ingot
