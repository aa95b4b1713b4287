// Result<T> and Error: how anything the input can cause is reported. INGOT_CHECK: how a fault of our own is.
// Every other layer includes this header; it includes nothing of ours.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace ingot {

/// Where an error was raised. Filled by default arguments, so that clang 14 and GCC 12 agree (no <source_location>).
struct SourceLoc {
  const char* file = "";
  int line = 0;
  static constexpr SourceLoc here(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    return {file, line};
  }
};

enum class ErrorKind : uint8_t { Invalid, Unsupported, NotFound, Io, OutOfMemory, Device, Internal };
const char* name_of(ErrorKind kind);

/// What went wrong, and one line of context for each layer it passed through on the way up.
struct Error {
  ErrorKind kind = ErrorKind::Internal;
  std::string message;
  std::vector<std::string> context;
  SourceLoc where;

  Error& add(std::string line) {
    context.push_back(std::move(line));
    return *this;
  }
  /// "error: unsupported: …" followed by one indented line per context entry. No trailing newline.
  std::string to_string() const;
};

[[nodiscard]] inline Error make_error(ErrorKind kind, std::string message, SourceLoc where = SourceLoc::here()) {
  return Error{kind, std::move(message), {}, where};
}
[[nodiscard]] inline Error invalid(std::string message, SourceLoc where = SourceLoc::here()) {
  return Error{ErrorKind::Invalid, std::move(message), {}, where};
}
[[nodiscard]] inline Error unsupported(std::string message, SourceLoc where = SourceLoc::here()) {
  return Error{ErrorKind::Unsupported, std::move(message), {}, where};
}

template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}

  explicit operator bool() const { return state_.index() == 0; }
  bool ok() const { return state_.index() == 0; }
  T& value() & { return std::get<0>(state_); }
  const T& value() const& { return std::get<0>(state_); }
  T value() && { return std::get<0>(std::move(state_)); }
  Error& error() & { return std::get<1>(state_); }
  const Error& error() const& { return std::get<1>(state_); }
  Error error() && { return std::get<1>(std::move(state_)); }
  T* operator->() { return &std::get<0>(state_); }


  T& operator*() & { return std::get<0>(state_); }

 private:
  std::variant<T, Error> state_;
};

template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Error error) : error_(std::move(error)), failed_(true) {}

  explicit operator bool() const { return !failed_; }
  bool ok() const { return !failed_; }
  void value() const {}
  Error& error() & { return error_; }
  const Error& error() const& { return error_; }
  Error error() && { return std::move(error_); }

 private:
  Error error_;
  bool failed_ = false;
};
using Status = Result<void>;

[[noreturn]] void check_failed(const char* condition, const std::string& message, SourceLoc where = SourceLoc::here());

}  // namespace ingot

/// Evaluates a Result; returns its Error from the enclosing function, or yields its value.
#define INGOT_TRY(...)                                          \
  __extension__({                                               \
    auto ingot_result_ = (__VA_ARGS__);                         \
    if (!ingot_result_) return std::move(ingot_result_).error(); \
    std::move(ingot_result_).value();                           \
  })

/// For what only a fault of ours can cause: prints the condition and the place, and aborts.
#define INGOT_CHECK(condition, ...)                                             \
  do {                                                                          \
    if (!(condition)) ::ingot::check_failed(#condition, ::std::string(__VA_ARGS__)); \
  } while (0)
