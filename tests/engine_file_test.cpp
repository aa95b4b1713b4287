// .ingot files: round trip, identical bytes, and clear errors for whatever is not a good file. Links the runtime only.
#include "runtime/engine_file.h"

#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>

#include "catch2/catch.hpp"
#include "runtime/cpu/cpu_device.h"

using namespace ingot;
using namespace ingot::runtime;
namespace fs = std::filesystem;

namespace {

struct Folder {
  std::string path;
  Folder() {
    std::string name = (fs::temp_directory_path() / "ingot-file-XXXXXX").string();
    path = ::mkdtemp(name.data());
  }
  ~Folder() { fs::remove_all(path); }
};

Program sample() {
  Program p;
  p.target = "cpu,sm_90a";
  p.model_name = "model";
  p.options = "fp32";
  p.symbols = {{"N", 1, 64}};
  p.shapes.lines = {{ShapeOp::Symbol, 0, 0, 0, 0},
                    {ShapeOp::Constant, 0, 0, 0, 4},
                    {ShapeOp::Mul, 0, 1, 0, 0},
                    {ShapeOp::Constant, 0, 0, 0, 1}};
  p.inputs = {{"x", DType::F32, {0}, {0}}};
  p.outputs = {{"y", DType::F32, {0}, {}}};
  auto w = std::make_shared<Tensor>(DType::F32, std::vector<int64_t>{3});
  for (int64_t i = 0; i < 3; ++i) w->set_float(i, 1.5 * static_cast<double>(i));
  p.constants = {{"w", DType::F32, {3}, w},
                 {"none", DType::I64, {0}, std::make_shared<Tensor>(DType::I64, std::vector<int64_t>{0})}};
  p.slots = {{2}};
  p.values = {{Place::Input, 0, DType::F32, 2, "x"},
              {Place::Constant, 0, DType::F32, 2, "w"},
              {Place::Output, 0, DType::F32, 2, "y"},
              {Place::Output, 0, DType::F32, 2, "part", 2}};
  KernelInfo k;
  k.name = "fused_add_123456";
  k.summary = "Add";
  k.nodes = {"a/b", "c"};
  k.source = "text";
  k.binaries = {{"cpu", {1, 2, 3}}, {"sm_90a", {4, 5, 6, 7}}};
  k.threads = 128;
  k.shared_bytes = 99;
  k.scratch_bytes = 1 << 20;
  k.tensor_cost = 6;
  p.kernels = {k};
  Instruction i;
  i.kernel = 0;
  i.args = {0, 1, 2};
  i.dims = {0};
  i.grid = {3, 3, 3};
  i.bytes = 2;
  i.flops = 0;
  Instruction divided = i;
  divided.part_bytes = 2;
  p.instructions = {i, divided};
  p.requirements = {{3, "always"}};
  return p;
}

EngineFile sample_file(const std::string& notes) {
  EngineFile file;
  file.programs.push_back(std::make_shared<const Program>(sample()));
  file.notes = notes;
  return file;
}

std::string read(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}
void write(const std::string& path, const std::string& bytes) { std::ofstream(path, std::ios::binary) << bytes; }

std::string error_of(const std::string& path) {
  auto r = load_engine(path, {true});
  return r.ok() ? "no error" : r.error().to_string();
}

}  // namespace

TEST_CASE("a program survives the file", "[engine]") {
  Folder f;
  const std::string path = f.path + "/m.ingot";
  REQUIRE(save_engine(sample_file("{\"hash\":1}"), path).ok());
  auto loaded = load_engine(path, {true});
  REQUIRE(loaded.ok());
  const Program& p = *loaded.value().programs[0];
  const Program want = sample();
  CHECK(loaded.value().notes == "{\"hash\":1}");
  CHECK(!loaded.value().host_code_dropped);
  CHECK(p.target == want.target);
  CHECK(p.shapes.lines.size() == 4);
  CHECK(p.inputs[0].name == "x");
  CHECK(p.inputs[0].symbols == std::vector<int32_t>{0});
  CHECK(p.kernels[0].nodes == want.kernels[0].nodes);
  CHECK(p.kernels[0].binaries[1].code == want.kernels[0].binaries[1].code);
  CHECK(p.kernels[0].scratch_bytes == 1 << 20);
  CHECK(p.kernels[0].tensor_cost == 6);
  CHECK(p.instructions[0].args == want.instructions[0].args);
  CHECK(p.requirements[0].message == "always");
  CHECK(p.constants[0].data->float_at(2) == 3.0);
  CHECK(reinterpret_cast<uintptr_t>(p.constants[0].data->data()) % 64 == 0);
  CHECK(p.constants[1].data->count() == 0);
}

TEST_CASE("the same program gives the same bytes", "[engine]") {
  Folder f;
  REQUIRE(save_engine(sample_file("n"), f.path + "/a").ok());
  REQUIRE(save_engine(sample_file("n"), f.path + "/b").ok());
  CHECK(read(f.path + "/a") == read(f.path + "/b"));
  auto loaded = load_engine(f.path + "/a", {true});
  REQUIRE(save_engine(loaded.value(), f.path + "/c").ok());
  CHECK(read(f.path + "/a") == read(f.path + "/c"));
}

TEST_CASE("binaries are compressed, equal ones once, and programs for other devices may stay in the file", "[engine]") {
  Folder f;
  EngineFile file;
  for (const char* target : {"sm_80", "sm_90a", "x86-64-v2"}) {
    auto p = std::make_shared<Program>(sample());
    p->target = target;
    p->kernels[0].binaries = {{target, std::vector<uint8_t>(100'000, 7)}};
    for (size_t i = 0; i < 100'000; i += 100) p->kernels[0].binaries[0].code[i] = static_cast<uint8_t>(i / 100);
    file.programs.push_back(p);
  }
  const std::string path = f.path + "/m";
  REQUIRE(save_engine(file, path).ok());
  CHECK(fs::file_size(path) < 30'000);
  auto all = load_engine(path, {true});
  REQUIRE(all.ok());
  REQUIRE(all.value().programs.size() == 3);
  for (size_t i = 0; i < 3; ++i)
    CHECK(all.value().programs[i]->kernels[0].binaries[0].code == file.programs[i]->kernels[0].binaries[0].code);
  const CpuDevice cpu(nullptr, 1);
  LoadOptions options;
  options.device = &cpu;
  const auto some = load_engine(path, options);
  REQUIRE(some.ok());
  CHECK(some.value().programs.size() == 1);
  CHECK(some.value().left_out == std::vector<std::string>{"sm_80", "sm_90a"});
  const auto untrusted = program_for(some.value(), cpu);
  REQUIRE(!untrusted.ok());
  CHECK(untrusted.error().to_string().find("did not say that it trusts the file") != std::string::npos);
  CHECK(untrusted.error().to_string().find("sm_90a: is for another kind of device") != std::string::npos);
}

TEST_CASE("host code needs trust", "[engine]") {
  Folder f;
  REQUIRE(save_engine(sample_file(""), f.path + "/a").ok());
  auto loaded = load_engine(f.path + "/a");
  REQUIRE(loaded.ok());
  CHECK(loaded.value().host_code_dropped);
  REQUIRE(loaded.value().programs[0]->kernels[0].binaries.size() == 1);
  CHECK(loaded.value().programs[0]->kernels[0].binaries[0].target == "sm_90a");
}

TEST_CASE("bad files get clear errors", "[engine]") {
  Folder f;
  const std::string good = f.path + "/good", bad = f.path + "/bad";
  REQUIRE(save_engine(sample_file("notes"), good).ok());
  const std::string bytes = read(good);
  CHECK(error_of(f.path + "/missing").find("No such file") != std::string::npos);
  CHECK(error_of(f.path).find("not a file") != std::string::npos);
  write(bad, "");
  CHECK(error_of(bad).find("not an .ingot file") != std::string::npos);
  write(bad, "PK\3\4 something else entirely, and long enough to hold a header of sixty-four bytes");
  CHECK(error_of(bad).find("not an .ingot file") != std::string::npos);
  write(bad, bytes.substr(0, bytes.size() - 1));
  CHECK(error_of(bad).find("cut off") != std::string::npos);
  write(bad, bytes + "x");
  CHECK(error_of(bad).find("too long") != std::string::npos);
  std::string version = bytes;
  version[8] = 9;
  write(bad, version);
  CHECK(error_of(bad).find("format version 9") != std::string::npos);
  CHECK(!save_engine(sample_file(""), f.path + "/no/such/folder/x").ok());
}

TEST_CASE("any flipped byte is found or harmless, and none crashes", "[engine]") {
  Folder f;
  const std::string good = f.path + "/good", bad = f.path + "/bad";
  REQUIRE(save_engine(sample_file("notes"), good).ok());
  const std::string bytes = read(good);
  std::mt19937 random(1);
  int accepted = 0;
  for (int i = 0; i < 400; ++i) {
    std::string edited = bytes;
    const size_t at = i < 64 ? static_cast<size_t>(i) : random() % bytes.size();
    edited[at] = static_cast<char>(edited[at] ^ (1 << (random() % 8)));
    write(bad, edited);
    accepted += error_of(bad) == "no error";
  }
  CHECK(accepted <= 150);  // only padding between sections is not covered by a checksum
}
