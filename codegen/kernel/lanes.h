// Expressions compiled to straight-line code over lanes: the engine of the interpreter. A register holds one value of each
// lane as f32, f64 or i64 (integers of every width and Bool live in i64 and are wrapped after each operation).
#pragma once

#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "compiler/expr/expr.h"

namespace ingot {

constexpr int kLanes = 256;

struct LaneMemory {            // what a buffer number refers to
  DType type = DType::F32;
  char* data = nullptr;
  int64_t count = 0;
  bool per_lane = false;       // scratch: element i of lane l is at i*kLanes + l
};

class Register {
 public:
  explicit Register(DType type = DType::I64) : type_(type) {}
  DType type() const { return type_; }
  float* f32() { return reinterpret_cast<float*>(bytes_); }
  double* f64() { return reinterpret_cast<double*>(bytes_); }
  int64_t* i64() { return reinterpret_cast<int64_t*>(bytes_); }
  void fill(int64_t v);
  void copy_from(const Register& other, int lanes);

 private:
  DType type_;
  alignas(64) unsigned char bytes_[kLanes * 8] = {};
};

/// Symbol name -> register; the interpreter binds loop indices, Lets and dims here.
using LaneScope = std::unordered_map<std::string, Register*>;

class LaneProgram {
 public:
  /// Compiles e. Lines that depend on a symbol of `varying` are run by run(); the others by prepare(). A Load is done only
  /// where the guards above it (Select conditions, and `mask` if valid) hold.
  LaneProgram(const std::vector<Expr>& roots, const std::vector<std::string>& varying);
  void prepare(const LaneScope& scope, const std::vector<LaneMemory>& memory, int lanes);
  void run(const LaneScope& scope, const std::vector<LaneMemory>& memory, int lanes);
  Register& root(size_t i) { return registers_[static_cast<size_t>(roots_[i])]; }
  /// Set when a Load went outside its buffer: "buffer 2, element 900 of 800".
  const std::string& fault() const { return fault_; }

 private:
  struct Line {
    ExprOp op;
    DType type;
    int out = 0, a = -1, b = -1, c = -1, mask = -1;
    int64_t payload = 0;
    std::string symbol = {};
    bool varying = false;
  };
  int compile(const Expr& e, int mask);
  int emit(Line line);
  void execute(const Line& line, const LaneScope& scope, const std::vector<LaneMemory>& memory, int lanes);
  void load(const Line& line, const std::vector<LaneMemory>& memory, int lanes);

  std::vector<std::string> varying_;
  std::vector<Line> lines_;
  std::vector<Register> registers_;
  std::vector<bool> varies_;
  std::vector<int> roots_;
  std::vector<Expr> keep_;  // keeps memo keys alive
  std::map<std::pair<const void*, int>, int> memo_;
  std::string fault_;
};

/// Writes register lanes into memory at the given indices, where mask (may be null) holds; false when outside.
bool store_lanes(const LaneMemory& memory, Register& index, Register& value, Register* mask, int lanes, std::string& fault);

}  // namespace ingot
