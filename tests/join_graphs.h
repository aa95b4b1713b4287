// Graphs whose concatenations are written in place (passes/join_parts.cpp): one for each way in which a part may come to lie
// in the whole. Used on the interpreter and, kernel by kernel, under the emulator.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace ingot::testing {

struct JoinGraph {
  const char* name;
  std::string text;
  std::vector<std::vector<std::string>> inputs;  // dims: numbers and symbols
  size_t kernels;                                // on a CPU; with a copy for every concatenation there would be more
};

inline std::string join_head() {
  return R"(graph (%0 "x": f32[N,6], %1 "y": f32[N,9]) where N in [0, inf] {
  %2 = const "wa": f32[6,5] data 11
  %3 = const "wb": f32[9,7] data 12
  %4 = MatMul(%0, %2): f32[N,5]
  %5 = MatMul(%1, %3): f32[N,7]
)";
}

inline std::vector<JoinGraph> join_graphs() {
  const std::vector<std::vector<std::string>> two{{"N", "6"}, {"N", "9"}};
  std::vector<JoinGraph> list;
  const auto add = [&](const char* name, size_t kernels, const char* rest) {
    list.push_back({name, join_head() + rest, two, kernels});
  };
  add("odd numbers of channels", 3, R"(  %6 = Concat(%4, %5) {axis=1}: f32[N,12]
  %7 = const "wc": f32[12,3] data 13
  %8 = MatMul(%6, %7): f32[N,3]
  return %8 "z"
})");
  add("each concatenation goes on with the last", 5, R"(  %6 = Concat(%4, %5) {axis=1}: f32[N,12]
  %7 = const "wc": f32[12,3] data 13
  %8 = MatMul(%6, %7): f32[N,3]
  %9 = Concat(%4, %5, %8) {axis=1}: f32[N,15]
  %10 = const "wd": f32[15,8] data 14
  %11 = MatMul(%9, %10): f32[N,8]
  %12 = Concat(%4, %5, %8, %11) {axis=1}: f32[N,23]
  %13 = const "we": f32[23,4] data 15
  %14 = Relu(%12): f32[N,23]
  %15 = MatMul(%14, %13): f32[N,4]
  return %15 "z"
})");
  add("a concatenation in the middle of another", 4, R"(  %6 = Concat(%4, %5) {axis=1}: f32[N,12]
  %7 = const "wc": f32[12,3] data 13
  %8 = MatMul(%6, %7): f32[N,3]
  %9 = Concat(%8, %6) {axis=1}: f32[N,15]
  %10 = const "wd": f32[15,8] data 14
  %11 = MatMul(%9, %10): f32[N,8]
  return %11 "z"
})");
  add("a part twice", 3, R"(  %6 = Concat(%4, %5, %4) {axis=1}: f32[N,17]
  %7 = const "wc": f32[17,3] data 13
  %8 = MatMul(%6, %7): f32[N,3]
  return %8 "z"
})");
  add("a part that is an output", 3, R"(  %6 = Concat(%4, %5) {axis=1}: f32[N,12]
  %7 = const "wc": f32[12,3] data 13
  %8 = MatMul(%6, %7): f32[N,3]
  return %8 "z", %5 "b"
})");
  add("a whole that is an output", 3, R"(  %6 = Concat(%4, %5) {axis=1}: f32[N,12]
  %7 = const "wc": f32[12,3] data 13
  %8 = MatMul(%6, %7): f32[N,3]
  return %6 "c", %8 "z"
})");
  add("a part that others read", 4, R"(  %6 = Concat(%4, %5) {axis=1}: f32[N,12]
  %7 = const "wc": f32[12,3] data 13
  %8 = MatMul(%6, %7): f32[N,3]
  %9 = const "wd": f32[7,3] data 14
  %10 = MatMul(%5, %9): f32[N,3]
  %11 = Sub(%8, %10): f32[N,3]
  return %11 "z"
})");
  add("two parts of one kernel", 3, R"(  %6 = Sigmoid(%4): f32[N,5]
  %7 = Concat(%6, %5, %4) {axis=1}: f32[N,17]
  %8 = const "wc": f32[17,3] data 13
  %9 = MatMul(%7, %8): f32[N,3]
  return %9 "z"
})");
  add("an input of the model", 4, R"(  %6 = Concat(%0, %4, %5) {axis=1}: f32[N,18]
  %7 = const "wc": f32[18,3] data 13
  %8 = MatMul(%6, %7): f32[N,3]
  return %8 "z"
})");
  add("a part of two concatenations", 5, R"(  %6 = Concat(%4, %5) {axis=1}: f32[N,12]
  %7 = const "wc": f32[12,3] data 13
  %8 = MatMul(%6, %7): f32[N,3]
  %9 = Concat(%8, %5) {axis=1}: f32[N,10]
  %10 = const "wd": f32[10,2] data 14
  %11 = MatMul(%9, %10): f32[N,2]
  %12 = Concat(%5, %8) {axis=1}: f32[N,10]
  %13 = MatMul(%12, %10): f32[N,2]
  %14 = Sub(%11, %13): f32[N,2]
  return %14 "z"
})");
  add("a branch of a merged product", 4, R"(  %6 = const "wc": f32[6,4] data 13
  %7 = MatMul(%0, %6): f32[N,4]
  %8 = const "wd": f32[4,3] data 14
  %9 = MatMul(%7, %8): f32[N,3]
  %10 = Concat(%4, %9, %5) {axis=1}: f32[N,15]
  %11 = const "we": f32[15,2] data 15
  %12 = MatMul(%10, %11): f32[N,2]
  return %12 "z"
})");
  list.push_back({"a place that a dimension decides", R"(graph (%0 "x": f32[N,6], %1 "y": f32[M,9]) {
  %2 = const "wa": f32[6,5] data 11
  %3 = const "wb": f32[9,5] data 12
  %4 = MatMul(%0, %2): f32[N,5]
  %5 = MatMul(%1, %3): f32[M,5]
  %6 = Concat(%4, %5) {axis=0}: f32[N + M,5]
  %7 = const "wc": f32[5,3] data 13
  %8 = MatMul(%6, %7): f32[N + M,3]
  return %8 "z"
})", {{"N", "6"}, {"M", "9"}}, 3});
  list.push_back({"shuffled channels", R"(graph (%0 "x": f32[N,6,4,4]) {
  %1 = const "wa": f32[6,6,1,1] data 11
  %2 = Conv(%0, %1) {kernel=[1, 1], strides=[1, 1], dilations=[1, 1], begins=[0, 0], ends=[0, 0]}: f32[N,6,4,4]
  %3 = Slice(%2) {starts=[0, 0, 0, 0], steps=[1, 1, 1, 1], sizes=[N, 3, 4, 4]}: f32[N,3,4,4]
  %4 = Slice(%2) {starts=[0, 3, 0, 0], steps=[1, 1, 1, 1], sizes=[N, 3, 4, 4]}: f32[N,3,4,4]
  %5 = const "wb": f32[3,3,3,3] data 12
  %6 = Conv(%4, %5) {kernel=[3, 3], strides=[1, 1], dilations=[1, 1], begins=[1, 1], ends=[1, 1]}: f32[N,3,4,4]
  %7 = Concat(%3, %6) {axis=1}: f32[N,6,4,4]
  %8 = Reshape(%7) {shape=[N, 2, 3, 4, 4]}: f32[N,2,3,4,4]
  %9 = Transpose(%8) {perm=[0, 2, 1, 3, 4]}: f32[N,3,2,4,4]
  %10 = Reshape(%9) {shape=[N, 6, 4, 4]}: f32[N,6,4,4]
  %11 = Slice(%10) {starts=[0, 0, 0, 0], steps=[1, 1, 1, 1], sizes=[N, 3, 4, 4]}: f32[N,3,4,4]
  %12 = Slice(%10) {starts=[0, 3, 0, 0], steps=[1, 1, 1, 1], sizes=[N, 3, 4, 4]}: f32[N,3,4,4]
  %13 = Conv(%12, %5) {kernel=[3, 3], strides=[1, 1], dilations=[1, 1], begins=[1, 1], ends=[1, 1]}: f32[N,3,4,4]
  %14 = Add(%13, %11): f32[N,3,4,4]
  return %14 "z"
})", {{"N", "6", "4", "4"}}, 3});
  list.push_back({"branches of an image", R"(graph (%0 "x": f32[N,8,5,5]) {
  %1 = const "wa": f32[8,8,1,1] data 11
  %2 = Conv(%0, %1) {kernel=[1, 1], strides=[1, 1], dilations=[1, 1], begins=[0, 0], ends=[0, 0]}: f32[N,8,5,5]
  %3 = const "wb": f32[12,8,3,3] data 12
  %4 = Conv(%2, %3) {kernel=[3, 3], strides=[1, 1], dilations=[1, 1], begins=[1, 1], ends=[1, 1]}: f32[N,12,5,5]
  %5 = Relu(%4): f32[N,12,5,5]
  %6 = MaxPool(%2) {kernel=[3, 3], strides=[1, 1], dilations=[1, 1], begins=[1, 1], ends=[1, 1]}: f32[N,8,5,5]
  %7 = Concat(%5, %6, %2) {axis=1}: f32[N,28,5,5]
  %8 = const "wc": f32[16,28,3,3] data 13
  %9 = Conv(%7, %8) {kernel=[3, 3], strides=[1, 1], dilations=[1, 1], begins=[1, 1], ends=[1, 1]}: f32[N,16,5,5]
  return %9 "z"
})", {{"N", "8", "5", "5"}}, 4});
  return list;
}

/// The dims of the graph's inputs with every symbol at n.
inline std::vector<std::vector<int64_t>> dims_of(const JoinGraph& g, int64_t n) {
  std::vector<std::vector<int64_t>> list;
  for (const auto& dims : g.inputs) {
    list.emplace_back();
    for (const std::string& d : dims) list.back().push_back(d == "N" || d == "M" ? n : std::stoll(d));
  }
  return list;
}

}  // namespace ingot::testing
