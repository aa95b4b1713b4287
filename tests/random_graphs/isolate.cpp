#include "tests/random_graphs/isolate.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <string_view>

namespace ingot::testing {
namespace {

constexpr std::string_view kMark = "\nvariant: ";

void write_all(int fd, const void* data, size_t bytes) {
  const char* p = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t n = write(fd, p, bytes);
    if (n <= 0) _exit(3);
    p += n, bytes -= static_cast<size_t>(n);
  }
}
void send_text(int fd, const std::string& s) {
  const uint64_t size = s.size();
  write_all(fd, &size, sizeof size);
  write_all(fd, s.data(), s.size());
}
void send_result(int fd, const CheckResult& r) {
  write_all(fd, &r.fault, sizeof r.fault);
  write_all(fd, &r.runs, 5 * sizeof r.runs);
  send_text(fd, r.variant);
  send_text(fd, r.text);
}

/// The parent's end: the pipe of results and the file of what the child prints.
class Child {
 public:
  Child(pid_t pid, int pipe, int log) : pid_(pid), pipe_(pipe), log_(log) {}
  ~Child() {
    close(pipe_);
    close(log_);
    if (pid_ > 0) {
      kill(pid_, SIGKILL);
      waitpid(pid_, nullptr, 0);
    }
  }
  /// False: the child ended or the time is over; `fault` says which.
  bool receive(CheckResult& r, double seconds) {
    deadline_ = std::chrono::steady_clock::now() + std::chrono::milliseconds(static_cast<int64_t>(seconds * 1000));
    return read_all(&r.fault, sizeof r.fault) && read_all(&r.runs, 5 * sizeof r.runs) && read_text(r.variant) &&
           read_text(r.text);
  }
  CheckResult post_mortem() {
    CheckResult r;
    r.variant = last_variant();
    int status = 0;
    if (timed_out_) {
      r.fault = Fault::Hang;
      r.text = "no result in time";
      return r;
    }
    waitpid(pid_, &status, 0);
    pid_ = -1;
    r.fault = Fault::Crash;
    r.text = (WIFSIGNALED(status) ? fmt::format("signal {} ({})", WTERMSIG(status), strsignal(WTERMSIG(status)))
                                  : fmt::format("exit {}", WEXITSTATUS(status))) +
             last_words();
    return r;
  }

 private:
  bool read_all(void* data, size_t bytes) {
    char* p = static_cast<char*>(data);
    while (bytes > 0) {
      const auto left =
          std::chrono::duration_cast<std::chrono::milliseconds>(deadline_ - std::chrono::steady_clock::now()).count();
      pollfd f{pipe_, POLLIN, 0};
      if (left <= 0 || poll(&f, 1, static_cast<int>(left)) == 0) return !(timed_out_ = true);
      const ssize_t n = read(pipe_, p, bytes);
      if (n <= 0) return false;
      p += n, bytes -= static_cast<size_t>(n);
    }
    return true;
  }
  bool read_text(std::string& s) {
    uint64_t size = 0;
    if (!read_all(&size, sizeof size)) return false;
    s.resize(size);
    return read_all(s.data(), size);
  }
  /// The end of what the child printed.
  std::string log_tail() {
    char text[2000];
    const off_t end = lseek(log_, 0, SEEK_END), from = std::max<off_t>(0, end - static_cast<off_t>(sizeof text));
    const ssize_t n = pread(log_, text, sizeof text, from);
    return std::string(text, n > 0 ? static_cast<size_t>(n) : 0);
  }
  std::string last_variant() {
    const std::string tail = log_tail();
    const size_t at = tail.rfind(kMark);
    return at == std::string::npos
               ? ""
               : tail.substr(at + kMark.size(), tail.find('\n', at + kMark.size()) - at - kMark.size());
  }
  std::string last_words() {
    const std::string tail = log_tail();
    const size_t at = tail.rfind(kMark), end = at == std::string::npos ? 0 : tail.find('\n', at + kMark.size());
    return end == std::string::npos ? "" : tail.substr(end);
  }
  pid_t pid_;
  int pipe_, log_;
  bool timed_out_ = false;
  std::chrono::steady_clock::time_point deadline_;
};

}  // namespace

uint64_t check_range(uint64_t first, uint64_t last, double seconds, const std::function<CheckResult(uint64_t)>& work,
                     const std::function<void(uint64_t, const CheckResult&)>& done) {
  int ends[2];
  char path[] = "/tmp/random_graphs.XXXXXX";
  const int log = mkstemp(path);
  unlink(path);
  INGOT_CHECK(log >= 0 && pipe(ends) == 0, "no pipe");
  std::fflush(nullptr);
  const pid_t pid = fork();
  INGOT_CHECK(pid >= 0, "no process");
  if (pid == 0) {
    close(ends[0]);
    dup2(log, STDERR_FILENO);
    dup2(log, STDOUT_FILENO);
    for (uint64_t i = first; i < last; ++i) send_result(ends[1], work(i));
    _exit(0);
  }
  close(ends[1]);
  Child child(pid, ends[0], log);
  for (uint64_t i = first; i < last; ++i) {
    CheckResult r;
    const bool received = child.receive(r, seconds);
    done(i, received ? r : child.post_mortem());
    // A device may be left in a state that fails everything after it; a wrong result leaves it alone.
    if (!received || (r.fault != Fault::None && r.fault != Fault::Wrong)) return i + 1;
  }
  return last;
}

CheckResult check_isolated(const GraphCase& c, const std::vector<Variant>& variants, double seconds) {
  CheckResult result;
  check_range(
      0, 1, seconds, [&](uint64_t) { return check_case(c, variants); },
      [&](uint64_t, const CheckResult& r) { result = r; });
  return result;
}

}  // namespace ingot::testing
