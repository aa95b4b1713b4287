#include "compiler/support/result.h"

#include <cstdio>
#include <cstdlib>

namespace ingot {

const char* name_of(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::Invalid: return "invalid";
    case ErrorKind::Unsupported: return "unsupported";
    case ErrorKind::NotFound: return "not found";
    case ErrorKind::Io: return "i/o";
    case ErrorKind::OutOfMemory: return "out of memory";
    case ErrorKind::Device: return "device";
    case ErrorKind::Internal: return "internal";
  }
  return "?";
}

std::string Error::to_string() const {
  std::string text = std::string("error: ") + name_of(kind) + ": " + message;
  for (const std::string& line : context) text += "\n  " + line;
  return text;
}

void check_failed(const char* condition, const std::string& message, SourceLoc where) {
  std::fprintf(stderr, "ingot: internal check failed: %s\n  %s\n  at %s:%d\n", condition, message.c_str(), where.file,
               where.line);
  std::abort();
}

}  // namespace ingot
