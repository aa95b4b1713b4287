#include "runtime/store.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace ingot::runtime {
namespace {

namespace fs = std::filesystem;

constexpr const char* kSums = "checksums";
constexpr const char* kKeyFile = "key";
constexpr const char* kTally = "written";
constexpr const char* kPrivate = "tmp-";
constexpr auto kAbandoned = std::chrono::hours(1);  // no entry takes as long to write
constexpr size_t kShortValue = 100;
constexpr size_t kKeyDigits = 32;

std::string default_root() {
  if (const char* dir = std::getenv("INGOT_CACHE_DIR"); dir && *dir) return dir;
  if (const char* dir = std::getenv("XDG_CACHE_HOME"); dir && *dir == '/') return std::string(dir) + "/ingot";
  if (const char* home = std::getenv("HOME"); home && *home) return std::string(home) + "/.cache/ingot";
  return "";
}

uint64_t default_cap() {
  const char* text = std::getenv("INGOT_CACHE_MB");
  const long long mb = text ? std::atoll(text) : 0;
  return mb > 0 ? static_cast<uint64_t>(mb) << 20 : Store::kDefaultCap;
}

/// Why a folder cannot be trusted or used; empty when it can.
std::string folder_problem(const std::string& root) {
  if (root.empty()) return "no cache folder: neither INGOT_CACHE_DIR nor HOME is set";
  std::error_code ec;
  const bool existed = fs::exists(root, ec);
  fs::create_directories(root, ec);
  if (ec) return fmt::format("{} cannot be created: {}", root, ec.message());
  if (!existed) ::chmod(root.c_str(), 0700);
  struct stat info;
  if (::lstat(root.c_str(), &info) != 0) return fmt::format("{}: {}", root, std::strerror(errno));
  if (S_ISLNK(info.st_mode) && ::stat(root.c_str(), &info) != 0)
    return fmt::format("{}: {}", root, std::strerror(errno));
  if (!S_ISDIR(info.st_mode)) return root + " is not a folder";
  if (info.st_uid != ::geteuid()) return fmt::format("{} belongs to another user (uid {})", root, info.st_uid);
  if (info.st_mode & (S_IWGRP | S_IWOTH)) return root + " can be written by other users";
  return "";
}

bool is_key(const std::string& name) {
  return name.size() == kKeyDigits && name.find_first_not_of("0123456789abcdef") == std::string::npos;
}

std::optional<std::vector<uint8_t>> read_file(const fs::path& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
  if (fd < 0) return std::nullopt;
  struct stat info;
  std::vector<uint8_t> data;
  bool ok = ::fstat(fd, &info) == 0 && S_ISREG(info.st_mode) && info.st_uid == ::geteuid();
  if (ok) data.resize(static_cast<size_t>(info.st_size));
  for (size_t done = 0; ok && done < data.size();) {
    const ssize_t n = ::read(fd, data.data() + done, data.size() - done);
    ok = n > 0;
    if (ok) done += static_cast<size_t>(n);
  }
  ::close(fd);
  if (!ok) return std::nullopt;
  return data;
}

bool write_file(const fs::path& path, const void* data, size_t size) {
  std::ofstream out(path, std::ios::binary);
  out.write(static_cast<const char*>(data), static_cast<std::streamsize>(size));
  out.close();
  return out.good();
}

/// Calls visit(folder path) for every entry of the store.
template <class F>
void for_each_entry(const std::string& root, F visit) {
  std::error_code ec;
  for (const fs::directory_entry& shard : fs::directory_iterator(root, ec)) {
    if (shard.path().filename().string().size() != 2) continue;
    for (const fs::directory_entry& entry : fs::directory_iterator(shard.path(), ec))
      if (is_key(entry.path().filename().string())) visit(entry.path());
  }
}

/// Notes that something was written and returns what all processes have written since the cap was last looked at, in bytes.
/// The note is the length of a file, a byte for each kilobyte, which appending extends for everyone at once: many short
/// processes would each stay below a limit of their own.
uint64_t add_to_tally(const std::string& root, uint64_t bytes) {
  const int fd = ::open((fs::path(root) / kTally).c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0) return 0;
  const std::string marks((bytes + 1023) / 1024, '.');
  const ssize_t written = ::write(fd, marks.data(), marks.size());
  struct stat info {};
  const bool ok = written > 0 && ::fstat(fd, &info) == 0;
  ::close(fd);
  return ok ? static_cast<uint64_t>(info.st_size) * 1024 : 0;
}

/// Removes what processes that were killed were writing; with `all`, what others may be writing now, too.
void remove_unfinished(const std::string& root, bool all) {
  std::error_code ec;
  const auto limit = fs::file_time_type::clock::now() - kAbandoned;
  for (const fs::directory_entry& e : fs::directory_iterator(root, ec)) {
    if (e.path().filename().string().rfind(kPrivate, 0) != 0) continue;
    std::error_code bad;
    const auto changed = fs::last_write_time(e.path(), bad);
    if (all || (!bad && changed < limit)) fs::remove_all(e.path(), bad);
  }
}

uint64_t size_of_folder(const fs::path& folder) {
  std::error_code ec;
  uint64_t bytes = 0;
  for (const fs::directory_entry& file : fs::directory_iterator(folder, ec)) {
    const uint64_t size = file.file_size(ec);
    if (!ec) bytes += size;
  }
  return bytes;
}

}  // namespace

Store::Store(std::string root, uint64_t cap_bytes)
    : root_(root.empty() ? default_root() : std::move(root)),
      problem_(folder_problem(root_)),
      cap_bytes_(cap_bytes ? cap_bytes : default_cap()) {}

std::string Store::folder_of(const std::string& key) const { return root_ + "/" + key.substr(0, 2) + "/" + key; }

std::optional<StoreFiles> Store::read_entry(const std::string& folder) {
  const auto sums = read_file(fs::path(folder) / kSums);
  if (!sums) return std::nullopt;
  std::istringstream lines(std::string(sums->begin(), sums->end()));
  StoreFiles files;
  std::string hash, name, end;
  while (lines >> hash >> name) {
    if (hash == "end") break;
    if (name.find('/') != std::string::npos || name[0] == '.') return std::nullopt;
    auto data = read_file(fs::path(folder) / name);
    if (!data || hash_bytes(data->data(), data->size()).hex() != hash) return std::nullopt;
    files[name] = std::move(*data);
  }
  if (hash != "end" || name != std::to_string(files.size())) return std::nullopt;  // the list itself is cut off
  return files;
}

Hash128 StoreKey::hash() const {
  std::string all;
  for (const auto& [name, value] : fields)
    all += fmt::format("{} {} {} {}\n", name.size(), name, value.size(), value);  // lengths: no two lists read the same
  return hash_text(all);
}

std::string StoreKey::text() const {
  std::string lines;
  for (const auto& [name, value] : fields) {
    const bool brief = value.size() <= kShortValue && value.find('\n') == std::string::npos;
    lines += fmt::format("{} {} {}\n", name, hash_text(value).hex(), brief ? value : "");
  }
  return lines;
}

std::optional<StoreFiles> Store::find(const StoreKey& key) {
  if (!usable()) return ++misses_, std::nullopt;
  const std::string folder = folder_of(key.hash().hex());
  std::error_code ec;
  if (!fs::exists(folder, ec)) return ++misses_, std::nullopt;
  auto files = read_entry(folder);
  if (files && files->erase(kKeyFile) == 0) files.reset();
  if (!files) {
    ++bad_;
    ++misses_;
    fs::remove_all(folder, ec);
    return std::nullopt;
  }
  ++hits_;
  ::utimensat(AT_FDCWD, folder.c_str(), nullptr, 0);  // marks it as used, for eviction
  return files;
}

void Store::put(const StoreKey& store_key, const StoreFiles& contents) {
  if (!usable()) return;
  const Hash128 key = store_key.hash();
  const std::string key_text = store_key.text();
  StoreFiles files = contents;
  files[kKeyFile].assign(key_text.begin(), key_text.end());
  static std::atomic<uint64_t> turn{0};
  const std::string final_folder = folder_of(key.hex());
  const std::string private_folder = fmt::format("{}/{}{}-{}-{}", root_, kPrivate, ::getpid(), ++turn, key.hex(8));
  std::error_code ec;
  fs::create_directories(private_folder, ec);
  std::string sums;
  uint64_t bytes = 0;
  bool ok = !ec;
  for (const auto& [name, data] : files) {
    INGOT_CHECK(!name.empty() && name[0] != '.' && name.find_first_of("/ \n") == std::string::npos && name != kSums,
                "bad file name in a store entry: " + name);
    ok = ok && write_file(fs::path(private_folder) / name, data.data(), data.size());
    sums += hash_bytes(data.data(), data.size()).hex() + " " + name + "\n";
    bytes += data.size();
  }
  sums += fmt::format("end {}\n", files.size());
  ok = ok && write_file(fs::path(private_folder) / kSums, sums.data(), sums.size());
  if (ok) {
    fs::create_directories(fs::path(final_folder).parent_path(), ec);
    ok = ::rename(private_folder.c_str(), final_folder.c_str()) == 0;  // fails when the entry exists: it is as good
  }
  if (!ok) fs::remove_all(private_folder, ec);
  if (ok && add_to_tally(root_, bytes) > cap_bytes_ / 16) evict();
}

void Store::evict() {
  ::truncate((fs::path(root_) / kTally).c_str(), 0);
  remove_unfinished(root_, false);
  struct Entry {
    fs::file_time_type used;
    uint64_t bytes;
    fs::path path;
  };
  std::vector<Entry> entries;
  uint64_t total = 0;
  for_each_entry(root_, [&](const fs::path& path) {
    std::error_code ec;
    const auto used = fs::last_write_time(path, ec);
    entries.push_back({used, size_of_folder(path), path});
    total += entries.back().bytes;
  });
  if (total <= cap_bytes_) return;
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) { return a.used < b.used; });
  for (const Entry& e : entries) {
    if (total <= cap_bytes_ / 10 * 9) break;  // some room, so that the next write does not evict again
    std::error_code ec;
    fs::remove_all(e.path, ec);
    total -= e.bytes;
  }
}

namespace {

/// The lines of a key file: name, hash of the value, value if it is short.
struct KeyLine {
  std::string name, hash, value;
};
std::vector<KeyLine> parse_key(const std::string& text) {
  std::vector<KeyLine> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) {
    std::istringstream words(line);
    KeyLine k;
    words >> k.name >> k.hash;
    std::getline(words >> std::ws, k.value);
    lines.push_back(std::move(k));
  }
  return lines;
}

/// "target is sm_90a, the entry's is sm_80; text differs"; and how many fields differ.
std::pair<std::string, size_t> compare_keys(const std::vector<KeyLine>& want, const std::vector<KeyLine>& have) {
  if (want.size() != have.size()) return {"", SIZE_MAX};
  std::string text;
  size_t differ = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    if (want[i].name != have[i].name) return {"", SIZE_MAX};
    if (want[i].hash == have[i].hash) continue;
    ++differ;
    text += (text.empty() ? "" : "; ") + want[i].name;
    text += want[i].value.empty() || have[i].value.empty()
                ? " differs"
                : fmt::format(" is {}, the entry's is {}", want[i].value, have[i].value);
  }
  return {text, differ};
}

}  // namespace

std::string Store::explain(const StoreKey& key) {
  if (!usable()) return problem_;
  const std::string folder = folder_of(key.hash().hex());
  std::error_code ec;
  if (fs::exists(folder, ec)) return read_entry(folder) ? "hit" : "the entry is damaged";
  const std::vector<KeyLine> want = parse_key(key.text());
  std::string best = "nothing like it is in the store";
  size_t fewest = want.size();  // an entry that differs in everything explains nothing
  for_each_entry(root_, [&](const fs::path& path) {
    const auto bytes = read_file(path / kKeyFile);
    if (!bytes) return;
    const auto [text, differ] = compare_keys(want, parse_key({bytes->begin(), bytes->end()}));
    if (differ < fewest) fewest = differ, best = text;
  });
  return best;
}

Status Store::may_compile(const std::string& what) const {
  const char* text = std::getenv("INGOT_ASSERT_CACHED");
  if (!text || std::strcmp(text, "1") != 0) return {};
  return make_error(ErrorKind::NotFound, fmt::format("{} is not in the store {} and INGOT_ASSERT_CACHED=1 forbids "
                                                     "compiling it{}{}",
                                                     what, root_, usable() ? "" : ": ", problem_));
}

StoreStats Store::stats() const {
  StoreStats s;
  s.hits = hits_;
  s.misses = misses_;
  s.bad = bad_;
  if (usable())
    for_each_entry(root_, [&](const fs::path& path) {
      ++s.entries;
      s.bytes += size_of_folder(path);
    });
  return s;
}

uint64_t Store::clear() {
  if (!usable()) return 0;
  std::vector<fs::path> paths;
  for_each_entry(root_, [&](const fs::path& path) { paths.push_back(path); });
  std::error_code ec;
  for (const fs::path& path : paths) fs::remove_all(path, ec);
  fs::remove(fs::path(root_) / kTally, ec);
  remove_unfinished(root_, true);
  return paths.size();
}

std::vector<std::string> Store::verify() {
  std::vector<std::string> bad;
  if (!usable()) return bad;
  std::vector<fs::path> paths;
  for_each_entry(root_, [&](const fs::path& path) { paths.push_back(path); });
  for (const fs::path& path : paths) {
    if (read_entry(path.string())) continue;
    bad.push_back(path.filename().string());
    std::error_code ec;
    fs::remove_all(path, ec);
  }
  return bad;
}

}  // namespace ingot::runtime
