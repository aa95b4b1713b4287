// Refit gives the very file that compiling the new model gives, without compiling a kernel, and refuses weights that do not
// fit and models that differ in more than weights.
#include "compiler/driver/refit.h"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>

#include "catch2/catch.hpp"
#include "tests/onnx_build.h"

using namespace ingot;
namespace fs = std::filesystem;
namespace rt = ingot::runtime;

namespace {

struct Folder {
  std::string path;
  Folder() {
    std::string name = (fs::temp_directory_path() / "ingot-refit-XXXXXX").string();
    path = ::mkdtemp(name.data());
    ::setenv("INGOT_CACHE_DIR", (path + "/cache").c_str(), 1);
  }
  ~Folder() {
    ::unsetenv("INGOT_CACHE_DIR");
    fs::remove_all(path);
  }
};

/// A convolution with batch normalisation, a product with bias, three products of one value (which become one), a scale by
/// a scalar, which becomes part of a kernel.
void write_model(const std::string& path, unsigned seed, float factor = 0.5f, int64_t width = 96) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal(0, 0.1f);
  onnx::Model m = test::new_model();
  const auto weight = [&](const std::string& name, const std::vector<int64_t>& dims, bool positive = false) {
    int64_t count = 1;
    for (int64_t d : dims) count *= d;
    std::vector<float> values(static_cast<size_t>(count));
    for (float& v : values) v = positive ? 1 + std::abs(normal(rng)) : normal(rng);
    test::add_initialiser(m, test::floats(name, dims, values));
  };
  test::add_input(m, "x", {"N", "3", "12", "12"});
  weight("cw", {96, 3, 3, 3}), weight("cb", {96});
  for (const char* name : {"scale", "shift", "mean"}) weight(name, {96});
  weight("var", {96}, true);
  for (const char* name : {"q", "k", "v"}) weight(name, {96, width});
  weight("bias", {width});
  test::add_initialiser(m, test::floats("factor", {}, {factor}));
  test::add_node(m, "Conv", {"x", "cw", "cb"}, {"c"});
  test::add_node(m, "BatchNormalization", {"c", "scale", "shift", "mean", "var"}, {"n"});
  test::add_node(m, "Relu", {"n"}, {"r"});
  test::add_node(m, "GlobalAveragePool", {"r"}, {"g"});
  test::add_node(m, "Flatten", {"g"}, {"f"});
  for (const char* name : {"q", "k", "v"}) test::add_node(m, "MatMul", {"f", name}, {std::string("p") + name});
  test::add_node(m, "Add", {"pq", "bias"}, {"a"});
  test::add_node(m, "Mul", {"a", "factor"}, {"s"});
  test::add_node(m, "Add", {"pk", "pv"}, {"kv"});
  test::add_node(m, "Sub", {"s", "kv"}, {"y"});
  test::add_output(m, "y");
  std::ofstream out(path, std::ios::binary);
  REQUIRE(m.SerializeToOstream(&out));
}

CompileOptions options(const std::string& precision) {
  CompileOptions o;
  o.precision = precision;
  o.targets = {"cpu", "x86-64", "source"};
  return o;
}

rt::EngineFile compile(const std::string& model, const std::string& precision = "fp32") {
  auto all = compile_for_targets(model, options(precision));
  if (!all) FAIL(all.error().to_string());
  rt::EngineFile file;
  for (const Compilation& c : *all) file.programs.push_back(std::make_shared<const rt::Program>(c.program));
  file.folding = record_folding(model, options(precision)).value();
  return file;
}

std::string bytes_of(const rt::EngineFile& file, const std::string& path) {
  REQUIRE(rt::save_engine(file, path).ok());
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

Weights weights_in(const std::string& model) { return weights_of(read_model(model).value()).value(); }

std::string message(const Result<rt::EngineFile>& r) { return r.ok() ? "no error" : r.error().to_string(); }
bool contains(const std::string& text, const std::string& part) {
  INFO(text);
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("refit equals a fresh compilation, bit for bit", "[refit]") {
  Folder f;
  const std::string before = f.path + "/old.onnx", after = f.path + "/new.onnx";
  const std::string precision = GENERATE("fp32", "tf32", "fp16");
  write_model(before, 1);
  write_model(after, 2);
  const rt::EngineFile compiled = compile(before, precision), want = compile(after, precision);
  REQUIRE(compiled.programs.size() == 3);
  const std::string path = f.path + "/old.ingot";
  const std::string original = bytes_of(compiled, path), wanted = bytes_of(want, f.path + "/new.ingot");
  CHECK(original != wanted);
  ::setenv("INGOT_ASSERT_CACHED", "1", 1);
  fs::remove_all(f.path + "/cache");  // nothing may be compiled, and nothing is needed
  auto loaded = rt::load_engine(path, {true});
  REQUIRE(loaded.ok());
  auto from_model = refit(*loaded, read_model(after).value());
  auto from_weights = refit(*loaded, weights_in(after));
  ::unsetenv("INGOT_ASSERT_CACHED");
  if (!from_model) FAIL(message(from_model));
  REQUIRE(from_weights.ok());
  CHECK(bytes_of(*from_model, f.path + "/a.ingot") == wanted);
  CHECK(bytes_of(*from_weights, f.path + "/b.ingot") == wanted);
  auto back = refit(*from_model, weights_in(before));
  REQUIRE(back.ok());
  CHECK(bytes_of(*back, f.path + "/c.ingot") == original);
}

TEST_CASE("what does not fit is refused", "[refit]") {
  Folder f;
  const std::string before = f.path + "/old.onnx", other = f.path + "/other.onnx";
  write_model(before, 1);
  const rt::EngineFile compiled = compile(before);
  write_model(other, 2, 0.25f);
  CHECK(contains(message(refit(compiled, read_model(other).value())), "differs from the compiled one"));
  write_model(other, 2, 0.5f, 128);
  CHECK(contains(message(refit(compiled, read_model(other).value())), "differs from the compiled one"));
  CHECK(contains(message(refit(compiled, weights_in(other))), "the model has f32[96,96]"));
  Weights weights = weights_in(before);
  weights.erase("cw");
  CHECK(contains(message(refit(compiled, weights)), "lack"));
  weights = weights_in(before);
  weights["more"] = weights["cw"];
  CHECK(contains(message(refit(compiled, weights)), "has no weight"));
  rt::EngineFile bare = compiled;
  bare.folding.clear();
  CHECK(contains(message(refit(bare, weights_in(before))), "does not keep the model's graph"));
  bare.folding = compiled.folding.substr(0, compiled.folding.size() / 2);
  CHECK(!refit(bare, weights_in(before)).ok());
}
