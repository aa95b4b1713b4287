#include "frontend/mapped_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "frontend/text.h"

namespace ingot {
namespace {

class FileDescriptor {
 public:
  explicit FileDescriptor(int fd) : fd_(fd) {}
  FileDescriptor(const FileDescriptor&) = delete;
  ~FileDescriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  int get() const { return fd_; }

 private:
  int fd_;
};

Error cannot_open(const std::string& path, int code) {
  const ErrorKind kind = code == ENOENT || code == ENOTDIR ? ErrorKind::NotFound : ErrorKind::Io;
  return make_error(kind, fmt::format("cannot open {}: {}", quote_name(path), std::strerror(code)));
}

}  // namespace

Result<std::shared_ptr<const MappedFile>> MappedFile::open(const std::string& path) { return map(path, false); }
Result<std::shared_ptr<const MappedFile>> MappedFile::open_jailed(const std::string& path) { return map(path, true); }

Result<std::shared_ptr<const MappedFile>> MappedFile::map(const std::string& path, bool jailed) {
  if (path.find('\0') != std::string::npos)
    return invalid(fmt::format("the path {} holds a zero byte", quote_name(path)));
  // O_NONBLOCK: opening a pipe that nobody writes must not wait.
  const FileDescriptor fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | (jailed ? O_NOFOLLOW : 0)));
  if (fd.get() < 0) return cannot_open(path, errno);
  struct stat info{};
  if (::fstat(fd.get(), &info) != 0) return cannot_open(path, errno);
  if (!S_ISREG(info.st_mode))
    return make_error(ErrorKind::Io, fmt::format("{} is not a regular file", quote_name(path)));
  if (jailed && info.st_nlink > 1)
    return invalid(
        fmt::format("{} has several hard links, so it may stand for a file elsewhere; use a copy", quote_name(path)));
  const auto size = static_cast<size_t>(info.st_size);
  if (size == 0) return std::shared_ptr<const MappedFile>(new MappedFile("", 0));
  void* memory = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd.get(), 0);
  if (memory == MAP_FAILED)
    return make_error(ErrorKind::Io, fmt::format("cannot map {}: {}", quote_name(path), std::strerror(errno)));
  return std::shared_ptr<const MappedFile>(new MappedFile(static_cast<const char*>(memory), size));
}

MappedFile::~MappedFile() {
  if (size_ > 0) ::munmap(const_cast<char*>(data_), size_);
}

}  // namespace ingot
