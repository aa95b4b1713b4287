// The content-addressed store: cubins, CPU objects and tuning results, keyed by a hash of everything that decides them.
// One folder per entry that a person can read:
//   <root>/<first two digits>/<key>/{kernel.cu, kernel.bin, key, checksums}
// An entry is written under a private name and renamed, so any number of processes may share a store. Files are checked
// against `checksums` when read; an entry that fails is a miss and is removed. The least recently used entries go when
// the store grows over its cap.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "compiler/support/hash.h"
#include "compiler/support/result.h"

namespace ingot::runtime {

/// File name to content. Names are plain: no '/', no leading '.'.
using StoreFiles = std::map<std::string, std::vector<uint8_t>>;

/// Everything that decides an entry, by name: the hash of it all is the entry's place, and the entry keeps the list, so
/// that a miss can be explained. Two keys that differ in any value have different hashes.
struct StoreKey {
  std::vector<std::pair<std::string, std::string>> fields;
  Hash128 hash() const;
  /// A line for each field: its name, the hash of its value, and the value where it is short.
  std::string text() const;
};

struct StoreStats {
  uint64_t entries = 0, bytes = 0;
  uint64_t hits = 0, misses = 0, bad = 0;  // of this process
};

class Store {
 public:
  static constexpr uint64_t kDefaultCap = uint64_t{4} << 30;  // $INGOT_CACHE_MB says otherwise

  /// A cap of 0 means $INGOT_CACHE_MB, or else kDefaultCap. An empty `root` means $INGOT_CACHE_DIR, or else the user's cache folder ($XDG_CACHE_HOME or ~/.cache, then
  /// /ingot). A folder that cannot be used (not creatable, of another user, writable by others) gives a store that is
  /// always empty: `problem()` says why.
  explicit Store(std::string root = "", uint64_t cap_bytes = 0);

  /// All files of the entry, or nullopt.
  std::optional<StoreFiles> find(const StoreKey& key);
  /// Stores an entry; failing to (a full disk) is not an error. An existing good entry is kept.
  void put(const StoreKey& key, const StoreFiles& files);
  /// Why find would miss, or "hit": the fields in which the nearest entry differs ("target is sm_90a, the entry's is
  /// sm_80"), or that nothing like it is there.
  std::string explain(const StoreKey& key);
  /// An Error when $INGOT_ASSERT_CACHED is 1: call it before compiling something that was not found.
  Status may_compile(const std::string& what) const;

  StoreStats stats() const;
  /// Removes every entry; returns how many.
  uint64_t clear();
  /// Reads every entry; removes the bad ones and returns their keys.
  std::vector<std::string> verify();

  const std::string& root() const { return root_; }
  const std::string& problem() const { return problem_; }
  bool usable() const { return problem_.empty(); }

 private:
  std::string folder_of(const std::string& key) const;
  std::optional<StoreFiles> read_entry(const std::string& folder);
  void evict();

  std::string root_, problem_;
  uint64_t cap_bytes_;
  std::atomic<uint64_t> hits_{0}, misses_{0}, bad_{0};
};

}  // namespace ingot::runtime
