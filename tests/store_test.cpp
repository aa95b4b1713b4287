// The content-addressed store: hits, damage, eviction, sharing, folders that are not trusted. Links the runtime only.
#include "runtime/store.h"

#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include "catch2/catch.hpp"

using namespace ingot;
using namespace ingot::runtime;
namespace fs = std::filesystem;

namespace {

/// A fresh folder that goes away with the test.
struct Folder {
  std::string path;
  Folder() {
    std::string name = (fs::temp_directory_path() / "ingot-store-XXXXXX").string();
    path = ::mkdtemp(name.data());
  }
  ~Folder() { fs::remove_all(path); }
};

StoreFiles entry(const std::string& text) { return {{"kernel.cu", {text.begin(), text.end()}}, {"empty", {}}}; }
StoreKey key_of(const std::string& text) { return {{{"kind", "test"}, {"kernel", text}}}; }
fs::path folder_of(const std::string& root, const StoreKey& key) {
  return fs::path(root) / key.hash().hex(2) / key.hash().hex();
}

}  // namespace

TEST_CASE("what is put is found, in a folder one can read", "[store]") {
  Folder f;
  Store store(f.path);
  const StoreKey key = key_of("a");
  CHECK(!store.find(key));
  store.put(key, entry("code"));
  REQUIRE(store.find(key));
  CHECK(*store.find(key) == entry("code"));
  CHECK(fs::exists(folder_of(f.path, key) / "kernel.cu"));
  CHECK(Store(f.path).find(key));
  CHECK(store.stats().entries == 1);
  CHECK(store.stats().misses == 1);
}

TEST_CASE("a damaged entry is a miss and is removed", "[store]") {
  const StoreKey key = key_of("a");
  const auto after = [&](const std::function<void(const fs::path&)>& damage) {
    Folder f;
    Store store(f.path);
    store.put(key, entry("code"));
    damage(folder_of(f.path, key));
    const bool miss = !store.find(key);
    return miss && !fs::exists(folder_of(f.path, key)) && store.stats().bad == 1;
  };
  CHECK(after([](const fs::path& p) { std::ofstream(p / "kernel.cu") << "evil"; }));
  CHECK(after([](const fs::path& p) { fs::remove(p / "kernel.cu"); }));
  CHECK(after([](const fs::path& p) { fs::remove(p / "checksums"); }));
  CHECK(after([](const fs::path& p) { fs::resize_file(p / "checksums", 20); }));
  CHECK(after([](const fs::path& p) {
    fs::remove(p / "kernel.cu");
    fs::create_symlink("/etc/passwd", p / "kernel.cu");
  }));
}

TEST_CASE("a change of any field is a miss, and is explained", "[store]") {
  Folder f;
  Store store(f.path);
  const StoreKey key{{{"kind", "cuda"},
                      {"target", "sm_90a"},
                      {"nvrtc", "13.0"},
                      {"options", "-x"},
                      {"kernel", std::string(500, 'k')}}};
  CHECK(store.explain(key) == "nothing like it is in the store");
  store.put(key, entry("code"));
  CHECK(store.explain(key) == "hit");
  for (size_t i = 0; i < key.fields.size(); ++i)
    for (const std::string& change : {std::string(), std::string("another"), key.fields[i].second + " "}) {
      StoreKey other = key;
      other.fields[i].second = change;
      CHECK(!store.find(other));
      CHECK(store.explain(other).find(key.fields[i].first) == 0);
    }
  StoreKey moved = key;  // the same characters, divided in another way
  moved.fields[1].second = "sm_90a nvrtc";
  moved.fields[2].first = "";
  CHECK(moved.hash().hex() != key.hash().hex());
  StoreKey target = key;
  target.fields[1].second = "sm_80";
  CHECK(store.explain(target) == "target is sm_80, the entry's is sm_90a");
}

TEST_CASE("a full disk, a read-only folder and another user's files are misses", "[store]") {
  Folder f;
  Store store(f.path);
  const StoreKey big = key_of("big"), small = key_of("small");
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit tight{2000, before.rlim_max};
  setrlimit(RLIMIT_FSIZE, &tight);
  store.put(big, entry(std::string(50'000, 'a')));
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, old_handler);
  CHECK(!store.find(big));
  for (const auto& e : fs::directory_iterator(f.path)) CHECK(e.path().filename().string().substr(0, 4) != "tmp-");
  store.put(small, entry("code"));
  CHECK(store.find(small));
  if (::geteuid() == 0) {  // only root can give a file away, and only others are kept out by permissions
    REQUIRE(::chown((folder_of(f.path, small) / "kernel.cu").c_str(), 12345, 12345) == 0);
    CHECK(!store.find(small));
  } else {
    fs::permissions(f.path, fs::perms::owner_read | fs::perms::owner_exec);
    store.put(big, entry("code"));
    CHECK(!store.find(big));
    CHECK(store.find(small));
    fs::permissions(f.path, fs::perms::owner_all);
  }
}

TEST_CASE("verify and clear", "[store]") {
  Folder f;
  Store store(f.path);
  for (int i = 0; i < 5; ++i) store.put(key_of(std::to_string(i)), entry("x" + std::to_string(i)));
  std::ofstream(folder_of(f.path, key_of("3")) / "kernel.cu") << "evil";
  const auto bad = store.verify();
  REQUIRE(bad.size() == 1);
  CHECK(bad[0] == key_of("3").hash().hex());
  CHECK(store.clear() == 4);
  CHECK(store.stats().entries == 0);
}

TEST_CASE("the least recently used entries go first", "[store]") {
  Folder f;
  Store store(f.path, 100'000);
  const auto key = [](int i) { return key_of("key" + std::to_string(i)); };
  for (int i = 0; i < 30; ++i) {
    store.put(key(i), entry(std::string(8000, 'a')));
    store.find(key(0));
    std::this_thread::sleep_for(std::chrono::milliseconds(5));  // file times are coarse
  }
  CHECK(store.stats().bytes <= 110'000);
  CHECK(store.find(key(0)));
  CHECK(store.find(key(29)));
  CHECK(!store.find(key(1)));
}

TEST_CASE("the cap holds over many short processes, and what a killed one left goes", "[store]") {
  Folder f;
  const fs::path old = fs::path(f.path) / "tmp-1-1-old", young = fs::path(f.path) / "tmp-1-2-young";
  for (const fs::path& p : {old, young}) {
    fs::create_directory(p);
    std::ofstream(p / "kernel.cu") << "half";
  }
  fs::last_write_time(old, fs::file_time_type::clock::now() - std::chrono::hours(3));
  for (int i = 0; i < 60; ++i) Store(f.path, 200'000).put(key_of("key" + std::to_string(i)), entry(std::string(8000, 'a')));
  CHECK(Store(f.path).stats().bytes <= 220'000);
  CHECK(Store(f.path).stats().entries > 10);
  CHECK(!fs::exists(old));
  CHECK(fs::exists(young));  // somebody may be writing it
  CHECK(Store(f.path).clear() > 10);
  CHECK(!fs::exists(young));
}

TEST_CASE("many writers of one key leave one good entry", "[store]") {
  Folder f;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      Store store(f.path);
      for (int i = 0; i < 50; ++i) {
        store.put(key_of(std::to_string(i % 5)), entry("same"));
        if (auto found = store.find(key_of(std::to_string(i % 5))); found && *found != entry("same")) std::abort();
      }
    });
  for (std::thread& t : threads) t.join();
  Store store(f.path);
  CHECK(store.stats().entries == 5);
  CHECK(store.verify().empty());
  for (const auto& e : fs::directory_iterator(f.path)) CHECK(e.path().filename().string().substr(0, 4) != "tmp-");
}

TEST_CASE("a folder of another user is not used", "[store]") {
  if (::geteuid() != 0) return;  // only root can give a folder away
  Folder f;
  {
    Store mine(f.path);
    mine.put(key_of("a"), entry("code"));
    REQUIRE(mine.find(key_of("a")));
  }
  REQUIRE(::chown(f.path.c_str(), 12345, 12345) == 0);
  Store store(f.path);
  CHECK(store.problem().find("belongs to another user (uid 12345)") != std::string::npos);
  CHECK(!store.find(key_of("a")));
  store.put(key_of("b"), entry("code"));
  CHECK(store.verify().empty());
  CHECK(store.clear() == 0);
  CHECK(fs::exists(folder_of(f.path, key_of("a"))));  // it is left alone
}

TEST_CASE("a folder that others can write is not used", "[store]") {
  Folder f;
  ::chmod(f.path.c_str(), 0777);
  Store store(f.path);
  CHECK(!store.usable());
  store.put(key_of("a"), entry("code"));
  CHECK(!store.find(key_of("a")));
  CHECK(store.problem().find("written by other users") != std::string::npos);
}

TEST_CASE("INGOT_CACHE_DIR and INGOT_ASSERT_CACHED", "[store]") {
  Folder f;
  ::setenv("INGOT_CACHE_DIR", (f.path + "/deep/er").c_str(), 1);
  Store store;
  CHECK(store.root() == f.path + "/deep/er");
  CHECK(store.usable());
  CHECK(store.may_compile("kernel x").ok());
  ::setenv("INGOT_ASSERT_CACHED", "1", 1);
  const Status s = store.may_compile("kernel x");
  ::unsetenv("INGOT_ASSERT_CACHED");
  ::unsetenv("INGOT_CACHE_DIR");
  REQUIRE(!s.ok());
  CHECK(s.error().message.find("kernel x") != std::string::npos);
}
