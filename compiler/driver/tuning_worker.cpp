// The protocol, a line each. To the worker: "round N", then N paths of engine files. From it: "ready" once; in a round
// "start I" before a candidate runs, "time I US RATIO NOISE AGREES" for each at the end, and "end"; or "failed
// MESSAGE", after which it exits: a device that has seen a fault does nothing more for that process.
#include "compiler/driver/tuning_worker.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <sstream>

#include "compiler/driver/devices.h"
#include "runtime/engine_file.h"

extern char** environ;

namespace ingot {
namespace {

constexpr const char* kReady = "ready";

double now_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::string one_line(std::string text) {
  for (char& c : text)
    if (c == '\n') c = ' ';
  return text;
}

/// Pipes that no other process inherits.
Status open_pipe(int (&ends)[2]) {
  if (pipe2(ends, O_CLOEXEC) != 0)
    return make_error(ErrorKind::Io, fmt::format("no pipe to a worker: {}", std::strerror(errno)));
  return {};
}

}  // namespace

TuningWorker::~TuningWorker() {
  stop();
  std::error_code ec;
  if (!folder_.empty()) std::filesystem::remove_all(folder_, ec);
}

Status TuningWorker::start() {
  if (process_ > 0) return {};
  int in[2], out[2];
  INGOT_TRY(open_pipe(in));
  INGOT_TRY(open_pipe(out));
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, in[0], 0);
  posix_spawn_file_actions_adddup2(&actions, out[1], 1);
  std::vector<char*> argv;
  for (std::string& a : options_.command) argv.push_back(a.data());
  argv.push_back(nullptr);
  const int status = posix_spawnp(&process_, argv[0], &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  close(in[0]);
  close(out[1]);
  to_ = in[1];
  from_ = out[0];
  if (status != 0) {
    process_ = -1;
    stop();
    return make_error(ErrorKind::Io, fmt::format("cannot start {}: {}", options_.command[0], std::strerror(status)));
  }
  auto ready = read_line(options_.start_seconds);
  if (ready && *ready == kReady) return {};
  Error error = ready ? make_error(ErrorKind::Device, *ready) : std::move(ready.error());
  stop();
  return std::move(error.add("while starting the process that measures"));
}

void TuningWorker::stop() {
  if (process_ > 0) {
    kill(process_, SIGKILL);
    waitpid(process_, nullptr, 0);
  }
  process_ = -1;
  for (int* end : {&to_, &from_}) {
    if (*end >= 0) close(*end);
    *end = -1;
  }
  unread_.clear();
}

Status TuningWorker::send(const std::string& text) {
  // A worker that is gone makes an error of this, and not a signal.
  struct sigaction ignore{}, before{};
  ignore.sa_handler = SIG_IGN;
  sigaction(SIGPIPE, &ignore, &before);
  const bool sent = write(to_, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  sigaction(SIGPIPE, &before, nullptr);
  if (!sent) return make_error(ErrorKind::Io, "the process that measures does not listen");
  return {};
}

/// Error: Device when the process has ended, and Io when no line came in time.
Result<std::string> TuningWorker::read_line(double seconds) {
  const double end = now_seconds() + seconds;
  for (;;) {
    if (const size_t at = unread_.find('\n'); at != std::string::npos) {
      std::string line = unread_.substr(0, at);
      unread_.erase(0, at + 1);
      return line;
    }
    const double left = end - now_seconds();
    pollfd waiting{from_, POLLIN, 0};
    if (left <= 0 || poll(&waiting, 1, static_cast<int>(left * 1000) + 1) == 0)
      return make_error(ErrorKind::Io, fmt::format("no answer in {:g} s", seconds));
    char buffer[4096];
    const ssize_t n = read(from_, buffer, sizeof buffer);
    if (n <= 0) return make_error(ErrorKind::Device, how_it_ended());
    unread_.append(buffer, static_cast<size_t>(n));
  }
}

std::string TuningWorker::how_it_ended() {
  int status = 0;
  waitpid(process_, &status, 0);
  process_ = -1;
  if (WIFSIGNALED(status))
    return fmt::format("the process ended by signal {} ({})", WTERMSIG(status), strsignal(WTERMSIG(status)));
  return fmt::format("the process ended with code {}", WEXITSTATUS(status));
}

Status TuningWorker::write_programs(const std::vector<std::shared_ptr<const runtime::Program>>& programs) {
  if (folder_.empty()) {
    std::string name = (std::filesystem::temp_directory_path() / "ingot-tune-XXXXXX").string();
    if (!mkdtemp(name.data())) return make_error(ErrorKind::Io, fmt::format("cannot make a folder like {}", name));
    folder_ = name;
  }
  for (size_t i = 0; i < programs.size(); ++i) {
    runtime::EngineFile file;
    file.programs = {programs[i]};
    INGOT_TRY(runtime::save_engine(file, fmt::format("{}/{}.ingot", folder_, i)));
  }
  return {};
}

/// One round of the candidates in `left`. Error: the round came to nothing; the candidate that is to blame then has a
/// failure.
Status TuningWorker::run_round(const std::vector<size_t>& left, std::vector<Timing>& timings) {
  INGOT_TRY(start());
  std::string request = fmt::format("round {}\n", left.size());
  for (size_t i : left) request += fmt::format("{}/{}.ingot\n", folder_, i);
  INGOT_TRY(send(request));
  size_t running = left[0];
  for (;;) {
    auto line = read_line(options_.answer_seconds);
    std::istringstream words(line ? *line : "");
    std::string what;
    size_t i = 0;
    words >> what;
    if (line && what == "end") return {};
    if (line && (what == "start" || what == "time") && words >> i && i < left.size()) {
      running = left[i];
      Timing& t = timings[running];
      if (what == "time") words >> t.us >> t.ratio >> t.noise >> t.agrees;
      continue;
    }
    timings[running].failure = !line              ? line.error().message
                               : what == "failed" ? line->substr(std::min<size_t>(7, line->size()))
                                                  : "the process said: " + *line;
    stop();
    return make_error(ErrorKind::Device, timings[running].failure);
  }
}

Result<std::vector<Timing>> TuningWorker::measure(
    const std::vector<std::shared_ptr<const runtime::Program>>& programs) {
  INGOT_TRY(start());
  INGOT_TRY(write_programs(programs));
  std::vector<Timing> timings(programs.size());
  for (;;) {
    std::vector<size_t> left;
    for (size_t i = 0; i < programs.size(); ++i)
      if (timings[i].failure.empty()) left.push_back(i);
    if (!timings[0].failure.empty() || left.size() < 2) return timings;
    Status round = run_round(left, timings);
    if (round) return timings;
    // Nobody is to blame for a process that does not start.
    if (std::all_of(left.begin(), left.end(), [&](size_t i) { return timings[i].failure.empty(); }))
      return std::move(round.error());
  }
}

int serve_worker(const std::string& name) {
  const auto say = [](const std::string& text) { std::cout << text << "\n" << std::flush; };
  const auto fail = [&](const Error& e) {
    say("failed " + one_line(e.to_string()));
    return 3;
  };
  auto opened = open_device(name);
  if (!opened) return fail(opened.error());
  say(kReady);
  size_t count = 0;
  for (std::string word; std::cin >> word >> count && word == "round";) {
    std::vector<std::shared_ptr<const runtime::Program>> programs;
    for (size_t i = 0; i < count; ++i) {
      std::string path;
      std::cin >> std::ws;
      std::getline(std::cin, path);
      auto file = runtime::load_engine(path);
      if (!file) return fail(file.error());
      programs.push_back(file->programs.at(0));
    }
    auto timings = measure_in_turns(programs, opened->device, {}, [&](size_t i) { say(fmt::format("start {}", i)); });
    if (!timings) return fail(timings.error());
    for (size_t i = 0; i < timings->size(); ++i) {
      const Timing& t = (*timings)[i];
      say(fmt::format("time {} {} {} {} {:d}", i, t.us, t.ratio, t.noise, t.agrees));
    }
    say("end");
  }
  return 0;
}

}  // namespace ingot
