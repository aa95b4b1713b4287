// Graphs of which much becomes one kernel on a GPU. Used on the interpreter and, kernel by kernel, under the emulator.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace ingot::testing {

struct FusedGraph {
  const char* name;
  std::string text;
  std::vector<int64_t> rest;  // of the input's dims, behind N
  size_t kernels;             // for sm_90
};

/// Small reductions and products are one kernel, stage by stage (passes/chain_groups.cpp).
inline std::vector<FusedGraph> chain_graphs() {
  std::vector<FusedGraph> list;
  list.push_back({"squeeze and excite", R"(graph (%0 "x": f32[N,40,5,7]) where N in [0, inf] {
  %1 = const "w1": f32[12,40,1,1] data 11
  %2 = const "b1": f32[12,1,1] data 12
  %3 = const "w2": f32[40,12,1,1] data 13
  %4 = const "b2": f32[40,1,1] data 14
  %5 = ReduceMean(%0) {axes=[2, 3]}: f32[N,40,1,1]
  %6 = Conv(%5, %1) {kernel=[1, 1], strides=[1, 1], dilations=[1, 1], begins=[0, 0], ends=[0, 0]}: f32[N,12,1,1]
  %7 = Add(%6, %2): f32[N,12,1,1]
  %8 = Sigmoid(%7): f32[N,12,1,1]
  %9 = Mul(%7, %8): f32[N,12,1,1]
  %10 = Conv(%9, %3) {kernel=[1, 1], strides=[1, 1], dilations=[1, 1], begins=[0, 0], ends=[0, 0]}: f32[N,40,1,1]
  %11 = Add(%10, %4): f32[N,40,1,1]
  %12 = Sigmoid(%11): f32[N,40,1,1]
  %13 = Mul(%0, %12): f32[N,40,5,7]
  return %13 "y"
})", {40, 5, 7}, 2});
  list.push_back({"squeeze and excite behind a depthwise convolution", R"(graph (%0 "x": f32[N,16,9,10]) where N in [0, inf] {
  %1 = const "w0": f32[24,16,1,1] data 11
  %2 = Conv(%0, %1) {kernel=[1, 1], strides=[1, 1], dilations=[1, 1], begins=[0, 0], ends=[0, 0]}: f32[N,24,9,10]
  %3 = Sigmoid(%2): f32[N,24,9,10]
  %4 = Mul(%2, %3): f32[N,24,9,10]
  %5 = const "wd": f32[24,1,3,3] data 12
  %6 = DepthwiseConv(%4, %5) {groups=24, kernel=[3, 3], strides=[1, 1], dilations=[1, 1], begins=[1, 1], ends=[1, 1]}: f32[N,24,9,10]
  %7 = Sigmoid(%6): f32[N,24,9,10]
  %8 = Mul(%6, %7): f32[N,24,9,10]
  %9 = ReduceMean(%8) {axes=[2, 3]}: f32[N,24,1,1]
  %10 = const "w1": f32[6,24,1,1] data 13
  %11 = Conv(%9, %10) {kernel=[1, 1], strides=[1, 1], dilations=[1, 1], begins=[0, 0], ends=[0, 0]}: f32[N,6,1,1]
  %12 = Relu(%11): f32[N,6,1,1]
  %13 = const "w2": f32[24,6,1,1] data 14
  %14 = Conv(%12, %13) {kernel=[1, 1], strides=[1, 1], dilations=[1, 1], begins=[0, 0], ends=[0, 0]}: f32[N,24,1,1]
  %15 = Sigmoid(%14): f32[N,24,1,1]
  %16 = Mul(%8, %15): f32[N,24,9,10]
  %17 = const "w3": f32[16,24,1,1] data 15
  %18 = Conv(%16, %17) {kernel=[1, 1], strides=[1, 1], dilations=[1, 1], begins=[0, 0], ends=[0, 0]}: f32[N,16,9,10]
  return %18 "y"
})", {16, 9, 10}, 5});
  list.push_back({"the pixels of channels last", R"(graph (%0 "x": f32[N,4,5,36]) where N in [0, inf] {
  %1 = const "w1": f32[36,9] data 11
  %2 = const "w2": f32[9,36] data 12
  %3 = ReduceMean(%0) {axes=[1, 2], keep=false}: f32[N,36]
  %4 = MatMul(%3, %1): f32[N,9]
  %5 = Relu(%4): f32[N,9]
  %6 = MatMul(%5, %2): f32[N,36]
  %7 = Sigmoid(%6): f32[N,36]
  return %7 "y"
})", {4, 5, 36}, 1});
  list.push_back({"a gate and its softmax", R"(graph (%0 "x": f32[N,96,11]) where N in [0, inf] {
  %1 = const "w": f32[96,4] data 11
  %2 = const "b": f32[4] data 12
  %3 = ReduceMax(%0) {axes=[2], keep=false}: f32[N,96]
  %4 = MatMul(%3, %1): f32[N,4]
  %5 = Add(%4, %2): f32[N,4]
  %6 = Softmax(%5) {axis=1}: f32[N,4]
  return %6 "y"
})", {96, 11}, 1});
  list.push_back({"a norm of averages", R"(graph (%0 "x": f32[N,24,3,3]) where N in [0, inf] {
  %1 = ReduceMean(%0) {axes=[2, 3], keep=false}: f32[N,24]
  %2 = LayerNormalization(%1) {axis=1}: f32[N,24]
  return %2 "y"
})", {24, 3, 3}, 1});
  list.push_back({"the largest of some products", R"(graph (%0 "x": f32[N,33,6]) where N in [0, inf] {
  %1 = const "w": f32[33,5] data 11
  %2 = ReduceSum(%0) {axes=[2], keep=false}: f32[N,33]
  %3 = MatMul(%2, %1): f32[N,5]
  %4 = ReduceMax(%3) {axes=[1]}: f32[N,1]
  %5 = Sub(%3, %4): f32[N,5]
  %6 = ArgMax(%5) {axes=[1]}: i64[N,1]
  %7 = Cast(%6) {to=f32}: f32[N,1]
  %8 = Add(%5, %7): f32[N,5]
  return %8 "y"
})", {33, 6}, 1});
  return list;
}

/// Reductions over the rows of a product, in its epilogue (passes/combine_rows.cpp).
inline std::vector<FusedGraph> row_group_graphs() {
  std::vector<FusedGraph> list;
  list.push_back({"the largest over time", R"(graph (%0 "x": f32[N,24,16]) where N in [0, inf] {
  %1 = const "w": f32[40,24,3] data 11
  %2 = const "b": f32[40,1] data 12
  %3 = Conv(%0, %1) {kernel=[3], strides=[1], dilations=[1], begins=[0], ends=[0]}: f32[N,40,14]
  %4 = Add(%3, %2): f32[N,40,14]
  %5 = ReduceMax(%4) {axes=[2], keep=false}: f32[N,40]
  %6 = Tanh(%5): f32[N,40]
  return %6 "y"
})", {24, 16}, 2});
  list.push_back({"the average of rows, with a residual", R"(graph (%0 "x": f32[N,21,24]) where N in [0, inf] {
  %1 = const "w": f32[24,24] data 11
  %2 = MatMul(%0, %1): f32[N,21,24]
  %3 = Add(%2, %0): f32[N,21,24]
  %4 = Relu(%3): f32[N,21,24]
  %5 = ReduceMean(%4) {axes=[1]}: f32[N,1,24]
  return %5 "y"
})", {21, 24}, 1});
  list.push_back({"pixels of an image", R"(graph (%0 "x": f32[N,16,4,8]) where N in [0, inf] {
  %1 = const "w": f32[48,16,1,1] data 11
  %2 = Conv(%0, %1) {kernel=[1, 1], strides=[1, 1], dilations=[1, 1], begins=[0, 0], ends=[0, 0]}: f32[N,48,4,8]
  %3 = ReduceL2(%2) {axes=[2, 3]}: f32[N,48,1,1]
  return %3 "y"
})", {16, 4, 8}, 2});
  list.push_back({"one direction of pixels that are one axis", R"(graph (%0 "x": f32[N,4,2,8]) where N in [0, inf] {
  %1 = const "w": f32[16,4,1,1] data 11
  %2 = Conv(%0, %1) {kernel=[1, 1], strides=[1, 1], dilations=[1, 1], begins=[0, 0], ends=[0, 0]}: f32[N,16,2,8]
  %3 = ReduceSum(%2) {axes=[3], keep=false}: f32[N,16,2]
  return %3 "y"
})", {4, 2, 8}, 2});  // the sum stays a kernel of its own
  list.push_back({"columns of an image", R"(graph (%0 "x": f32[N,8,5,16]) where N in [0, inf] {
  %1 = const "w": f32[24,8,3,3] data 11
  %2 = Conv(%0, %1) {kernel=[3, 3], strides=[1, 1], dilations=[1, 1], begins=[1, 1], ends=[1, 1]}: f32[N,24,5,16]
  %3 = Relu(%2): f32[N,24,5,16]
  %4 = ReduceSum(%3) {axes=[3], keep=false}: f32[N,24,5]
  return %4 "y"
})", {8, 5, 16}, 2});
  return list;
}

/// Attention in four windows of an image, each with a mask of its own that is added between two reshapes.
inline FusedGraph masked_windows() {
  return {"masked windows", R"(graph (%0 "x": f32[N,4,2,5,8]) where N in [0, inf] {
  %1 = Reshape(%0) {shape=[4*N, 2, 5, 8]}: f32[4*N,2,5,8]
  %2 = Transpose(%1) {perm=[0, 1, 3, 2]}: f32[4*N,2,8,5]
  %3 = MatMul(%1, %2): f32[4*N,2,5,5]
  %4 = const "bias": f32[1,2,5,5] data 11
  %5 = Add(%3, %4): f32[4*N,2,5,5]
  %6 = Reshape(%5) {shape=[N, 4, 2, 5, 5]}: f32[N,4,2,5,5]
  %7 = const "mask": f32[1,4,1,5,5] data 12
  %8 = Add(%6, %7): f32[N,4,2,5,5]
  %9 = Reshape(%8) {shape=[4*N, 2, 5, 5]}: f32[4*N,2,5,5]
  %10 = Softmax(%9) {axis=3}: f32[4*N,2,5,5]
  %11 = MatMul(%10, %1): f32[4*N,2,5,8]
  return %11 "y"
})", {4, 2, 5, 8}, 1};
}

inline std::vector<int64_t> dims_of(const FusedGraph& g, int64_t n) {
  std::vector<int64_t> dims{n};
  dims.insert(dims.end(), g.rest.begin(), g.rest.end());
  return dims;
}

/// Norms of rows between products, which are no kernels in 16 bits (passes/fold_norms.cpp).
inline std::vector<FusedGraph> norm_graphs() {
  std::vector<FusedGraph> list;
  list.push_back({"a norm that a product and a residual read", R"(graph (%0 "x": f32[N,70,128]) where N in [0, inf] {
  %22 = const "w0": f32[128,128] data 19
  %23 = MatMul(%0, %22): f32[N,70,128]
  %24 = Tanh(%23): f32[N,70,128]
  %1 = const "w1": f32[128,128] data 11
  %2 = const "b1": f32[128] data 12
  %3 = MatMul(%24, %1): f32[N,70,128]
  %4 = Add(%3, %2): f32[N,70,128]
  %5 = Add(%4, %24): f32[N,70,128]
  %6 = LayerNormalization(%5) {axis=2}: f32[N,70,128]
  %7 = const "scale": f32[128] data 13
  %8 = const "shift": f32[128] data 14
  %9 = Mul(%6, %7): f32[N,70,128]
  %10 = Add(%9, %8): f32[N,70,128]
  %11 = const "w2": f32[128,192] data 15
  %12 = const "b2": f32[192] data 16
  %13 = MatMul(%10, %11): f32[N,70,192]
  %14 = Add(%13, %12): f32[N,70,192]
  %15 = Gelu(%14): f32[N,70,192]
  %16 = const "w3": f32[192,128] data 17
  %17 = MatMul(%15, %16): f32[N,70,128]
  %18 = Add(%17, %10): f32[N,70,128]
  %19 = LayerNormalization(%18) {axis=2}: f32[N,70,128]
  %20 = const "w4": f32[128,64] data 18
  %21 = MatMul(%19, %20): f32[N,70,64]
  return %21 "y"
})", {70, 128}, 5});
  list.push_back({"a norm without a mean, and rows in another order", R"(graph (%0 "x": f32[N,9,64]) where N in [0, inf] {
  %13 = const "w0": f32[64,64] data 13
  %14 = MatMul(%0, %13): f32[N,9,64]
  %1 = const "w1": f32[64,192] data 11
  %2 = MatMul(%14, %1): f32[N,9,192]
  %3 = Relu(%2): f32[N,9,192]
  %4 = Mul(%3, %3): f32[N,9,192]
  %5 = ReduceMean(%4) {axes=[2]}: f32[N,9,1]
  %6 = const "epsilon": f32[] {0.001}
  %7 = Add(%5, %6): f32[N,9,1]
  %8 = Rsqrt(%7): f32[N,9,1]
  %9 = Mul(%3, %8): f32[N,9,192]
  %10 = Transpose(%9) {perm=[1, 0, 2]}: f32[9,N,192]
  %11 = const "w2": f32[192,72] data 12
  %12 = MatMul(%10, %11): f32[9,N,72]
  return %12 "y"
})", {9, 64}, 3});
  list.push_back({"a norm of rows that products have as one axis", R"(graph (%0 "x": f32[N,21,64]) where N in [0, inf] {
  %1 = Reshape(%0) {shape=[21*N, 64]}: f32[21*N,64]
  %2 = const "w1": f32[64,128] data 11
  %3 = MatMul(%1, %2): f32[21*N,128]
  %4 = const "b1": f32[128] data 12
  %5 = Add(%3, %4): f32[21*N,128]
  %6 = Reshape(%5) {shape=[N, 21, 128]}: f32[N,21,128]
  %7 = LayerNormalization(%6) {axis=2}: f32[N,21,128]
  %8 = Reshape(%7) {shape=[21*N, 128]}: f32[21*N,128]
  %9 = const "w2": f32[128,128] data 13
  %10 = MatMul(%8, %9): f32[21*N,128]
  %11 = const "b2": f32[128] data 14
  %12 = Add(%10, %11): f32[21*N,128]
  %13 = Add(%12, %8): f32[21*N,128]
  %14 = Tanh(%13): f32[21*N,128]
  return %14 "y"
})", {21, 64}, 2});
  list.push_back({"a norm of what a window computes", R"(graph (%20 "x": f32[N,4,6,64]) where N in [0, inf] {
  %0 = Transpose(%20) {perm=[0, 3, 1, 2]}: f32[N,64,4,6]
  %1 = const "w1": f32[64,1,7,7] data 11
  %2 = DepthwiseConv(%0, %1) {groups=64, kernel=[7, 7], strides=[1, 1], dilations=[1, 1], begins=[3, 3], ends=[3, 3]}: f32[N,64,4,6]
  %3 = const "b1": f32[64,1,1] data 12
  %4 = Add(%2, %3): f32[N,64,4,6]
  %5 = Transpose(%4) {perm=[0, 2, 3, 1]}: f32[N,4,6,64]
  %6 = LayerNormalization(%5) {axis=3}: f32[N,4,6,64]
  %7 = const "scale": f32[64] data 13
  %8 = const "shift": f32[64] data 14
  %9 = Mul(%6, %7): f32[N,4,6,64]
  %10 = Add(%9, %8): f32[N,4,6,64]
  %11 = const "w2": f32[64,128] data 15
  %12 = const "b2": f32[128] data 16
  %13 = MatMul(%10, %11): f32[N,4,6,128]
  %14 = Add(%13, %12): f32[N,4,6,128]
  %15 = Gelu(%14): f32[N,4,6,128]
  return %15 "y"
})", {4, 6, 64}, 2});
  list.push_back({"a norm of a window with half parts", R"(graph (%20 "x": f32[N,4,7,96]) where N in [0, inf] {
  %0 = Transpose(%20) {perm=[0, 3, 1, 2]}: f32[N,96,4,7]
  %1 = const "w1": f32[96,1,3,3] data 11
  %2 = DepthwiseConv(%0, %1) {groups=96, kernel=[3, 3], strides=[1, 1], dilations=[1, 1], begins=[1, 1], ends=[1, 1]}: f32[N,96,4,7]
  %3 = Relu(%2): f32[N,96,4,7]
  %4 = Transpose(%3) {perm=[0, 2, 3, 1]}: f32[N,4,7,96]
  %5 = Mul(%4, %4): f32[N,4,7,96]
  %6 = ReduceMean(%5) {axes=[3]}: f32[N,4,7,1]
  %7 = const "epsilon": f32[] {0.001}
  %8 = Add(%6, %7): f32[N,4,7,1]
  %9 = Rsqrt(%8): f32[N,4,7,1]
  %10 = Mul(%4, %9): f32[N,4,7,96]
  %11 = const "w2": f32[96,272] data 12
  %12 = MatMul(%10, %11): f32[N,4,7,272]
  return %12 "y"
})", {4, 7, 96}, 2});
  list.push_back({"weights that 16 bits hardly hold", R"(graph (%0 "x": f32[N,3,64]) where N in [0, inf] {
  %1 = const "w1": f32[64,64] data 11
  %2 = MatMul(%0, %1): f32[N,3,64]
  %3 = LayerNormalization(%2) {axis=2}: f32[N,3,64]
  %4 = const "scale": f32[64] data 12
  %5 = Mul(%3, %4): f32[N,3,64]
  %6 = const "w2": f32[64,64] data 13
  %7 = const "small": f32[] {0.0000002}
  %8 = Mul(%6, %7): f32[64,64]
  %9 = MatMul(%5, %8): f32[N,3,64]
  return %9 "y"
})", {3, 64}, 2});
  return list;
}

}  // namespace ingot::testing
