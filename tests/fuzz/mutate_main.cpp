// A main for the fuzz targets where libFuzzer is not at hand: feeds seeded mutations of the given files for a number of
// rounds. Under the sanitizers it is a test; with clang's -fsanitize=fuzzer the same target runs for as long as one likes.
//   fuzz_import ROUNDS FILE…
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

std::string mutated(std::string bytes, std::mt19937_64& rng) {
  for (uint64_t n = rng() % 8 + 1; n > 0 && !bytes.empty(); --n) {
    const size_t at = rng() % bytes.size();
    switch (rng() % 5) {
      case 0: bytes[at] = static_cast<char>(rng()); break;
      case 1: bytes[at] = static_cast<char>(bytes[at] ^ (1 << (rng() % 8))); break;
      case 2: bytes.erase(at, rng() % 16 + 1); break;
      case 3: bytes.insert(at, bytes.substr(rng() % bytes.size(), rng() % 32)); break;
      default: bytes.resize(at); break;
    }
  }
  return bytes;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) return std::fprintf(stderr, "usage: %s ROUNDS FILE…\n", argv[0]), 2;
  std::mt19937_64 rng(1);
  int runs = 0;
  for (int i = 2; i < argc; ++i) {
    std::ifstream in(argv[i], std::ios::binary);
    const std::string bytes((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
    for (int round = 0; round < std::atoi(argv[1]); ++round, ++runs) {
      const std::string input = mutated(bytes, rng);
      LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(input.data()), input.size());
    }
  }
  std::printf("%d mutated inputs, no fault\n", runs);
}
