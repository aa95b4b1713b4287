// Engine files with damage that checksums would hide: the program section is mutated, the checksums are made right again,
// and what is then accepted must be safe to plan and to run (its kernels are replaced by ones that touch all their bytes).
//   fuzz_engine ROUNDS
#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <random>

#include "compiler/support/hash.h"
#include "runtime/cpu/cpu_device.h"
#include "runtime/engine_file.h"
#include "runtime/engine_layout.h"
#include "runtime/executor.h"
#include "tests/program_builder.h"

using namespace ingot;
using namespace ingot::runtime;

namespace {

std::string read(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

/// Some bytes of one section changed, and every checksum right.
std::string mutated(std::string bytes, std::mt19937_64& rng) {
  EngineHeader header;
  std::memcpy(&header, bytes.data(), sizeof header);
  const size_t table = sizeof header;
  std::vector<SectionRow> rows(header.sections);
  std::memcpy(rows.data(), bytes.data() + table, rows.size() * sizeof(SectionRow));
  const SectionRow& hit = rows[0];  // the program
  for (uint64_t n = rng() % 4 + 1; n > 0; --n) {
    const size_t at = hit.offset + rng() % hit.size;
    bytes[at] = static_cast<char>(rng() % 3 ? static_cast<uint64_t>(bytes[at] ^ (1 << (rng() % 8))) : rng());
  }
  for (SectionRow& row : rows) {
    const Hash128 h = hash_bytes(bytes.data() + row.offset, row.size);
    row.hash[0] = h.high, row.hash[1] = h.low;
  }
  std::memcpy(bytes.data() + table, rows.data(), rows.size() * sizeof(SectionRow));
  const Hash128 h = hash_bytes(bytes.data() + table, rows.size() * sizeof(SectionRow));
  header.table_hash[0] = h.high, header.table_hash[1] = h.low;
  std::memcpy(bytes.data(), &header, sizeof header);
  return bytes;
}

void no_kernel(void* const*, const int64_t*, int64_t, int64_t, void*) {}

/// Loads, plans two shapes and runs one with kernels that do nothing. True when the file was accepted.
bool try_file(const std::string& path) {
  auto file = load_engine(path, {true});
  if (!file) return false;
  auto device =
      std::make_shared<CpuDevice>([](const KernelInfo&) -> Result<CpuCode> { return CpuCode{no_kernel, nullptr}; }, 1);
  auto engine = Engine::create(file.value().programs[0], device);
  if (!engine) return true;
  SessionOptions options;
  options.max_arena_bytes = 1 << 20;
  auto session = Session::create(engine.value(), options);
  if (!session) return true;
  static_cast<void>(session.value()->output_dims({{5, 3}}));
  static_cast<void>(session.value()->run({Tensor(DType::F32, {2, 3})}));
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 1000;
  const std::string path = fmt::format("/tmp/ingot-fuzz-engine-{}", ::getpid());
  auto program = testing::sums_program(4);
  for (Instruction& in : program->instructions) in.lane = in.kernel % 2;
  for (size_t i = 1; i < program->instructions.size(); ++i)
    program->instructions[i].waits = {static_cast<int32_t>(i) - 1};
  auto w = std::make_shared<Tensor>(DType::F32, std::vector<int64_t>{3});
  program->constants = {{"w", DType::F32, {3}, w}};
  EngineFile file;
  file.programs = {program};
  if (!save_engine(file, path)) return std::fprintf(stderr, "%s cannot be written\n", path.c_str()), 1;
  const std::string good = read(path);
  if (!try_file(path)) return std::fprintf(stderr, "the undamaged file is refused\n"), 1;
  std::mt19937_64 rng(1);
  int accepted = 0;
  for (int i = 0; i < rounds; ++i) {
    std::ofstream(path, std::ios::binary | std::ios::trunc) << mutated(good, rng);
    accepted += try_file(path);
  }
  ::unlink(path.c_str());
  std::printf("%d damaged files, %d accepted, no fault\n", rounds, accepted);
  return 0;
}
