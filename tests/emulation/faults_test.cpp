// Tests of the emulator itself: faults planted into generated kernels and into the prelude, one at a time, must be
// reported by name, or show as wrong numbers where the fault is only a wrong number.
#include <catch2/catch.hpp>

#include "codegen/cuda/cuda_backend.h"
#include "tests/emulation/attention_samples.h"
#include "tests/emulation/byte_samples.h"
#include "tests/emulation/emulated_driver.h"
#include "tests/emulation/emulator_device.h"
#include "tests/emulation/graph_samples.h"
#include "tests/emulation/planted_fault.h"
#include "tests/emulation/schedules.h"
#include "tests/fused_graphs.h"

using namespace ingot;
using namespace ingot::samples;

namespace {

Schedule tile_schedule(int m, int n, int thread) {
  Schedule s;
  s.kind = Schedule::Kind::Tiles;
  s.tile_m = m;
  s.tile_n = n;
  s.tile_k = 16;
  s.thread_m = s.thread_n = thread;
  s.threads = m / thread * (n / thread);
  return s;
}

constexpr const char* kSimt = "prelude/contraction_simt.cuh";
constexpr const char* kSkinny = "prelude/contraction_skinny.cuh";
constexpr const char* kReduce = "prelude/reduce.cuh";

}  // namespace

TEST_CASE("faults in the tiled main loop", "[emulated]") {
  const Schedule schedule = tile_schedule(64, 64, 4);  // eight warps
  const Fault faults[] = {
      {"no barrier at the end of a step", kSimt,
       "        tile_b.store(next + TileA::kBytes);\n      }\n      cta_sync();",
       "        tile_b.store(next + TileA::kBytes);\n      }", "shared-race"},
      {"no barrier before the first step", kSimt, "tile_b.store(shared + TileA::kBytes);\n      cta_sync();",
       "tile_b.store(shared + TileA::kBytes);", "shared-race"},
      {"both stages are one", kSimt, "next = shared + (1 - step % 2) * kStageBytes", "next = now", "shared-race"},
      {"k is not guarded", kSimt, "if (x < x_end && k < k_end)", "if (x < x_end)", "global-out-of-bounds"},
      {"rows are not guarded", kSimt, "if (x < x_end && k < k_end)", "if (k < k_end)", "global-out-of-bounds"},
      {"results behind the last row are stored", kSimt, "if (m < m_end && n < n_end)", "if (n < n_end)",
       "global-out-of-bounds"},
      {"the second stage lies behind the block's memory", kSimt, "kStageBytes = TileA::kBytes + TileB::kBytes",
       "kStageBytes = 2 * TileA::kBytes + TileB::kBytes", "shared-out-of-bounds"},
      {"half of a tile is never written", kSimt, "for (int j = 0; j < kVectors; ++j) {\n      const u32 to",
       "for (int j = 0; j < kVectors / 2; ++j) {\n      const u32 to", "uninitialised-shared"},
      {"results are read before they are all there", kSimt, "      cta_sync();\n#pragma unroll 1", "#pragma unroll 1",
       "shared-race"},
      {"the next results overwrite these", kSimt,
       "lds<T>(shared + (r * kRow + c) * (int)sizeof(T)));\n      }\n      cta_sync();",
       "lds<T>(shared + (r * kRow + c) * (int)sizeof(T)));\n      }", "shared-race"},
      {"a fragment is read off its alignment", kSimt,
       "row + tile_position<T, ThreadsAcross>(thread, j) * (int)sizeof(T)",
       "row + 4 + tile_position<T, ThreadsAcross>(thread, j) * (int)sizeof(T)", "misaligned"},
      {"the wrong element of the tile", kSimt, "k_of(j) * kRow + x_of(j)", "k_of(j) * kRow + (x_of(j) ^ 4)", "wrong"},
      {"some warps skip a barrier", kSimt, "tile_b.store(shared + TileA::kBytes);\n      cta_sync();",
       "tile_b.store(shared + TileA::kBytes);\n      if (threadIdx.x >= 32) cta_sync();", "deadlock"},
  };
  const Sample sample = matmul(1, 70, 66, 37, false, false, DType::F32);
  for (const Fault& fault : faults) plant(sample, fault, &schedule);
}

TEST_CASE("faults in the main loop on tensor cores", "[emulated]") {
  Schedule schedule = tile_schedule(64, 64, 4);
  schedule.unit = MultiplyUnit::Tf32x3;
  schedule.tile = {.m = 64, .n = 64, .k = 32, .warp_m = 32, .warp_n = 32, .k_warps = 2, .stages = 3};
  schedule.threads = schedule.tile.threads();
  const Sample raw = matmul(1, 70, 66, 109, false, false, DType::F32);
  const Sample computed = activated_matmul(70, 66, 109, DType::F32, false);
  const Fault faults[] = {
      {"no barrier before a stage is used", kMma, "cp_async_wait<Plan::stages - 2>();\n      cta_sync();",
       "cp_async_wait<Plan::stages - 2>();", "shared-race"},
      {"one copy too few is waited for", kMma, "cp_async_wait<Plan::stages - 2>()", "cp_async_wait<Plan::stages - 1>()",
       "shared-race"},
      {"the stage in use is overwritten", kMma, "copy_a(last, step", "copy_a(now, step", "shared-race"},
      {"k is not guarded", kMmaOperand, "bool in = inside[kSides == 1 ? 0 : j] && k < k_end;",
       "bool in = inside[kSides == 1 ? 0 : j];", "global-out-of-bounds"},
      {"rows are not guarded", kMmaOperand, "inside[j] = x < x_end;", "inside[j] = true;", "global-out-of-bounds"},
      {"results behind the last row are stored", kTile, "if (m[j] >= m_end || n[j] >= n_end) continue;",
       "if (n[j] >= n_end) continue;", "global-out-of-bounds"},
      {"partial sums are added without a barrier", kTile,
       "if (Plan::cluster_k == 1 || w + 1 < Plan::k_warps) cta_sync();", "", "shared-race"},
      {"results overwrite a stage in use", kMma, "    cp_async_wait<0>();\n    cta_sync();", "    cp_async_wait<0>();",
       "shared-race"},
      {"the small half is left out", kMma, "mma_1688_tf32(sum[j], a_small, big[s][j]);", "", "inexact"},
      {"the wrong half of k", kMmaOperand, "r[1] = lds<u32>(at + 4 * kRow);", "r[1] = lds<u32>(at);", "wrong"},
  };
  for (const Fault& fault : faults) plant(raw, fault, &schedule);
  plant(computed,
        {"elements are stored into the stage in use", kMma, "in_a.store(shared + next);", "in_a.store(shared + now);",
         "shared-race"},
        &schedule);
  schedule.cluster_k = 2;
  plant(raw,
        {"sums of the other block are read too early", kTile,
         "if constexpr (Plan::cluster_k > 1) cluster_sync();\n    if constexpr (Plan::together > 1)",
         "if constexpr (Plan::together > 1)", "race"},
        &schedule);
  plant(raw,
        {"a block leaves while another reads its sums", kTile,
         "if constexpr (Plan::cluster_k > 1) cluster_sync();\n    else cta_sync();", "", "peer-exited"},
        &schedule);
}

TEST_CASE("faults in the main loop of warpgroups", "[emulated]") {
  Schedule schedule = tile_schedule(64, 64, 4);
  schedule.unit = MultiplyUnit::F16;
  schedule.tile = {.m = 128, .n = 64, .k = 64, .warp_m = 64, .warp_n = 64, .stages = 3, .warpgroups = true};
  schedule.threads = schedule.tile.threads();
  const Sample sample = matmul(1, 150, 72, 328, false, true, DType::F16);
  const Fault faults[] = {
      {"no barrier before a stage is used", kWgmma, "fence_proxy_async();\n      cta_sync();", "fence_proxy_async();",
       "race"},
      {"no fence between copies and products", kWgmma, "fence_proxy_async();\n      cta_sync();", "cta_sync();",
       "fence"},
      {"one copy too few is waited for", kWgmma, "cp_async_wait<kAhead - 1>()", "cp_async_wait<kAhead>()", "race"},
      {"the stage in use is overwritten", kWgmma, "copy_a(free, step", "copy_a(now, step", "race"},
      {"the wrong 16 steps of k", kProduct, "x * kRow + k * kSize :", "x * kRow + k * 2 * kSize :", "wrong"},
  };
  for (const Fault& fault : faults) plant(sample, fault, &schedule);
}

/// f16 by warpgroups, all tiles by one block.
Schedule one_block_of(const MmaTile& tile, MultiplyUnit unit = MultiplyUnit::F16) {
  Schedule s = tile_schedule(64, 64, 4);
  s.unit = unit;
  s.tile = tile;
  s.threads = tile.threads();
  s.most_blocks = 1;
  return s;
}

TEST_CASE("faults in products of rows", "[emulated]") {
  const Schedule schedule = one_block_of({.m = 64,
                                          .n = 24,
                                          .k = 152,
                                          .warp_m = 64,
                                          .warp_n = 24,
                                          .stages = 2,
                                          .warpgroups = true,
                                          .boxes = true,
                                          .row_teams = 2});
  const Fault faults[] = {
      {"a tile is not waited for", kRowsOfProduct, "mbar_wait(memory.full(team, slot), phase);", "", "race"},
      {"a stage is sent for before it is free", kRowsOfProduct, "mbar_wait(memory.empty(team, slot), phase);", "",
       "race"},
      {"weights are not waited for", kRowsOfProduct, "mbar_wait(memory.have_weights(), 0);", "", "race"},
      {"operands change while they are multiplied", kRowsOfProduct, "operands[g / kTogether % 2]", "operands[0]",
       "operand-changed"},
      {"the gate of the wrong row", kChanged, "sides.of[q % 2]", "sides.of[q / 2]", "wrong"},
      {"rows behind the last are stored", kStaged, "(m_end - m < 16 ? m_end - m : 16)", "16", "global-out-of-bounds"},
      {"the last columns take another's place", kStaged, "sts(word(lane / 4 + 8), words[1]);",
       "sts(word(lane / 4), words[1]);", "wrong"},
  };
  for (const Fault& fault : faults) plant(rows_matmul(455, 24, 152, DType::F16, 1, true), fault, &schedule);
  plant(rows_matmul(100, 24, 152, DType::F16, 1, true),
        {"rows behind the last are read", kRowsOfProduct, "(row < rows ? row : rows - 1)", "row", "uninitialised"},
        &schedule);
}

TEST_CASE("faults in the main loop of boxes", "[emulated]") {
  const Schedule schedule = one_block_of({.m = 64,
                                          .n = 64,
                                          .k = 64,
                                          .warp_m = 64,
                                          .warp_n = 64,
                                          .stages = 3,
                                          .warpgroups = true,
                                          .overlap = true,
                                          .boxes = true,
                                          .in_turn = true});
  const Sample sample = matmul(1, 150, 72, 264, false, true, DType::F16);
  const Fault faults[] = {
      {"a stage is sent for before it is free", kBoxes, "mbar_wait(ring.empty(), ring.phase ^ 1);", "", "race"},
      {"products do not wait for a stage", kBoxes, "mbar_wait(ring.full(), ring.phase);", "", "race"},
      {"a stage is free while it is multiplied", kBoxes, "product.template settle<1>();", "", "race"},
      {"the barriers' start is not fenced", kBoxes, "fence_mbar_init();", "", "not-fenced"},
      {"no barrier behind it", kBoxes, "  ring.clear_rest();\n  cta_sync();", "", "mbarrier-not-initialised"},
      {"a tile too few", kBoxes, "ring.skip((Ring::kTeams - 1) * steps);", "", "deadlock"},
  };
  for (const Fault& fault : faults) plant(sample, fault, &schedule);
  const Fault in_chunks[] = {
      {"results are read before they are written", kResults, "Scratch::put(scratch, acc[i] + c / 2);\n    warp_sync();",
       "Scratch::put(scratch, acc[i] + c / 2);", "uninitialised"},
      {"results behind the last row are stored", kResults, "if (m < m_end && n < n_end) call", "if (n < n_end) call",
       "global-out-of-bounds"},
      {"the same results twice", kResults, "Scratch::place(row(x), column(x) + g)", "Scratch::place(row(x), column(x))",
       "wrong"},
  };
  Schedule narrow = schedule;  // results that leave by threads
  narrow.tile.n = narrow.tile.warp_n = 32;
  for (const Fault& fault : in_chunks) plant(sample, fault, &narrow);
  const Fault in_boxes[] = {
      {"a box leaves before all of it is there", kStaged, "fence_proxy_async();\n    warp_sync();", "",
       "missing-proxy-fence"},
      {"an input is not waited for", kStaged, "mbar_wait(barrier(p), phases >> p & 1);", "", "race"},
      {"an input takes the place of what is on its way out", kStaged,
       "if (!leads()) return;\n      bulk_wait_read<0>();", "if (!leads()) return;", "in-flight"},
      {"the wrong half of a box", kStaged, "kRow == 128 ? row % 8 :", "kRow == 128 ? row % 4 :", "wrong"},
      {"columns behind the last read inputs", kStaged, "return n < n_end ? n : n_end - 2;", "return n;",
       "global-out-of-bounds"},
  };
  for (const Fault& fault : in_boxes) plant(residual_matmul(1, 150, 72, 264, DType::F16), fault, &schedule);
  const Fault in_registers[] = {
      {"rows are changed before they are there", kBoxes,
       "if (step + 1 < steps) {\n        mbar_wait(ring.full(), ring.phase);", "if (step + 1 < steps) {", "race"},
      {"a stage is free while its weights are multiplied", kBoxes,
       "product.template wait<0>();\n      wgmma_operands(now);\n      release(slot);",
       "release(slot);\n      product.template wait<0>();", "race"},
      {"gates behind the end of k", kChanged, "prologue.depth(at < k_end ? at : k_end - 2)", "prologue.depth(at)",
       "global-out-of-bounds"},
      {"the wrong chunk of a row", kBoxes, "((s * 2 + lane / 16) ^ row % 8)", "(s * 2 + lane / 16)", "wrong"},
  };
  for (const Fault& fault : in_registers) plant(rows_matmul(150, 72, 264, DType::F16, 1, false), fault, &schedule);
  Schedule two = schedule;
  two.tile.n = two.tile.warp_n = 128;
  two.threads = two.tile.threads();
  plant(matmul(1, 390, 136, 72, false, true, DType::F16),
        {"a box is written while it leaves", kStaged, "if (leads()) bulk_commit();  // an empty one", "// an empty one",
         "in-flight"},
        &two);
  const Fault in_groups[] = {
      {"rows of a group are combined before they are there", kResults,
       "Scratch::put(mine, acc + c / 2);\n    bar_sync(barrier, Threads);",
       "Scratch::put(mine, acc + c / 2);\n    warp_sync();", "shared-race"},
      {"the next chunk overwrites rows", kResults,
       "epilogue.load(batch, m, n));\n    }\n    bar_sync(barrier, Threads);",
       "epilogue.load(batch, m, n));\n    }\n    warp_sync();", "shared-race"},
      {"groups behind the last one are stored", kResults, "has = i < kWork && m < m_end && n < n_end;",
       "has = i < kWork && n < n_end;", "global-out-of-bounds"},
      {"the wrong group", kBoxes, "0, at.m / Plan::together", "0, at.m / Plan::tile_m", "wrong"},
  };
  for (const Fault& fault : in_groups) plant(largest_of_rows(11, 14, 136, 72, DType::F16, 2), fault, &schedule);
  plant(conv(2, 64, 7, 9, 40, 3, 1, true, DType::F16),
        {"the wrong tap of a window", kBoxes, "tap % Plan::taps_w * Plan::dilation_w",
         "tap / Plan::taps_w * Plan::dilation_w", "wrong"},
        &schedule);
}

TEST_CASE("faults where blocks of a cluster share k", "[emulated]") {
  Schedule schedule = one_block_of({.m = 128, .n = 64, .k = 64, .warp_m = 64, .warp_n = 64, .stages = 3, .warpgroups = true, .overlap = true, .boxes = true});
  schedule.cluster_k = 4;
  const Fault faults[] = {
      {"all blocks multiply the same part of k", kBoxes, "send_a(at, first + step);", "send_a(at, step);", "wrong"},
      {"sums take the place of what is being multiplied", kBoxes, "workers_sync<Plan>();  // the other", "// the other", "race"},
      {"sums are added up before they are there", kBoxes, "put_product(ring.shared, product, true);\n    cluster_sync();",
       "put_product(ring.shared, product, true);\n    workers_sync<Plan>();", "deadlock"},
      {"more rows arrive than are waited for", kBoxes, "m_end < Plan::a_rows ? (u32)m_end : Plan::a_rows", "Plan::a_rows", "deadlock"},
  };
  for (const Fault& fault : faults) plant(dynamic_matmul(30, 72, 1416, DType::F16), fault, &schedule);
}

TEST_CASE("faults where blocks of the grid divide k", "[emulated]") {
  constexpr const char* kDivided = "prelude/divided_sums.cuh";
  Schedule schedule = one_block_of({.m = 128,
                                    .n = 64,
                                    .k = 64,
                                    .warp_m = 64,
                                    .warp_n = 64,
                                    .stages = 4,
                                    .warpgroups = true,
                                    .overlap = true,
                                    .boxes = true});
  schedule.grid_k = 3;
  const Fault faults[] = {
      {"all blocks multiply the same part of k", kBoxes, "share(steps, tiles);", "share(steps);", "wrong"},
      {"a part counts before all warps have stored it", kDivided, "workers_sync<Plan>();  // the stores",
       "// the stores", "shared-race"},
      {"other blocks may not see what counts", kDivided, "fence_gpu();\n        mine = count_up", "mine = count_up",
       "missing-fence"},
      {"counters are not at zero for the next launch", kDivided, "if (mine) stg(counter(s), 0);", "", "wrong"},
      {"an owner that gives up leaves nothing", kDivided, "put_parts(product, left);", "", "wrong"},
      {"a block takes another one's part for its own", kDivided, "p == (int)part", "p == 0", "wrong"},
      {"sums are stored before all are there", kDivided, "add_up(product, strips);\n    workers_sync<Plan>();",
       "add_up(product, strips);", "wrong"},
      {"a strip lies where another one does", kDivided, "kStrips + strip) * kPieces", "kStrips) * kPieces", "wrong"},
  };
  for (const Fault& fault : faults) plant(dynamic_matmul(30, 72, 1416, DType::F16), fault, &schedule);
  plant(largest_of_rows(11, 14, 136, 200, DType::F16),
        {"rows are combined before all have their values", kDivided,
         "sts(place + v * 4, values[v]);\n    });\n    workers_sync<Plan>();",
         "sts(place + v * 4, values[v]);\n    });", "shared-race"},
        &schedule);
}

TEST_CASE("faults in products of 8 bits", "[emulated]") {
  Schedule schedule = one_block_of({.m = 64,
                                    .n = 64,
                                    .k = 64,
                                    .warp_m = 64,
                                    .warp_n = 64,
                                    .stages = 3,
                                    .warpgroups = true,
                                    .overlap = true,
                                    .boxes = true,
                                    .in_turn = true},
                                   MultiplyUnit::Bytes);
  constexpr ByteTypes kUs{DType::U8, DType::I8};
  const Sample conv = byte_conv(2, 64, 7, 9, 40, 3, 1, true, kUs, ByteResult::Bytes);
  plant(conv,
        {"the wrong rows of 64 bytes", kProduct, "kRow == 128 ? kSwizzle128 : kSwizzle64", "kSwizzle128", "wrong"},
        &schedule);
  const Fault in_pairs[] = {
      {"chunks of a box of bytes are not permuted", kStaged, ": row / 2 % 4", ": 0", "wrong"},
      {"the wrong pair of bytes", kStaged, "(c + k / 2 * 8) * kSize", "(c + k % 2 * 8) * kSize", "wrong"},
      {"a byte that came is not waited for", kStaged, "mbar_wait(barrier(p), phases >> p & 1);", "", "race"},
  };
  for (const Fault& fault : in_pairs)
    plant(byte_matmul(1, 150, 144, 160, false, true, kUs, ByteResult::Added), fault, &schedule);
  schedule.unit = MultiplyUnit::F8;
  schedule.tile.k = 128;
  plant(f8_squares(40, 4096),
        {"sums of f8 do not settle", kMmaOperand, "return MmaTraits<typename Plan::element>::type == kE4M3;",
         "return false;", "wrong"},
        &schedule);
  plant(f8_squares(40, 2048),
        {"sums of f8 are read before they are there", kProduct, "if constexpr (kSettles) {\n      wgmma_wait<0>();",
         "if constexpr (kSettles) {", "wgmma"},
        &schedule);
  schedule.tile = {.m = 64, .n = 64, .k = 64, .warp_m = 32, .warp_n = 32, .stages = 3};
  schedule.threads = schedule.tile.threads();
  plant(byte_matmul(1, 70, 72, 96, false, true, {DType::F8E5M2, DType::F8E4M3}, ByteResult::Sums),
        {"e5m2 is taken for e4m3", kMmaOperand, "Plan::a_other ? kOtherA : 0", "0", "wrong"}, &schedule);
  schedule.unit = MultiplyUnit::F16;
  schedule.tile.k = 32;
  plant(byte_conv(1, 5, 9, 9, 17, 3, 1, false, {DType::F8E5M2, DType::F8E4M3}, ByteResult::Sums),
        {"the table behind the end of k is read", kMmaOperand, "in ? k_of(j, u) : 0", "k_of(j, u)",
         "global-out-of-bounds"},
        &schedule);
}

TEST_CASE("faults where f32 operands are split", "[emulated]") {
  const Schedule schedule = one_block_of({.m = 128,
                                          .n = 64,
                                          .k = 32,
                                          .warp_m = 64,
                                          .warp_n = 64,
                                          .stages = 3,
                                          .warpgroups = true,
                                          .overlap = true,
                                          .boxes = true,
                                          .split = true},
                                         MultiplyUnit::Tf32x3);
  const Sample sample = matmul(1, 150, 72, 136, false, true, DType::F32);
  const Fault faults[] = {
      {"small parts are not fenced", kSplit, "fence_proxy_async();\n    bar_sync(barrier, Team);",
       "bar_sync(barrier, Team);", "missing-proxy-fence"},
      {"small parts are multiplied before they are there", kSplit, "bar_sync(barrier, Team);", "", "race"},
      {"the small parts of B are left out", kSplit, "wgmma_ra<kTF32, 0>(sum, a.big[s], further(small, s), 1);", "",
       "inexact"},
      {"the small parts of A are left out", kSplit, "split_tf32(words[s], rows.big[s], rows.small[s]);",
       "{ split_tf32(words[s], rows.big[s], rows.small[s]); rows.small[s][0] = 0; }", "inexact"},
      {"sums of the step before count again", kSplit, "further(big, s), s > 0", "further(big, s), 1", "wrong"},
      {"the wrong chunk of a row", kSplit, "(half ^ row % 8)", "half", "wrong"},
      {"a step is split before it is there", kBoxes, "mbar_wait(ring.full(), ring.phase);\n      split.split_b",
       "split.split_b", "race"},
      {"a stage is free while it is multiplied", kBoxes,
       "split.wait(rows);\n      split.add(product.acc[0], a, b);\n      release(slot);",
       "release(slot);\n      split.wait(rows);\n      split.add(product.acc[0], a, b);", "race"},
  };
  for (const Fault& fault : faults) plant(sample, fault, &schedule);
  const Fault in_wide_boxes[] = {
      {"the wrong half of a chunk", kStaged, "byte / 16) + byte % 16;", "byte / 16) + byte / 2 % 16;", "wrong"},
      {"an input is not waited for", kStaged, "mbar_wait(barrier(p), phases >> p & 1);", "", "race"},
      {"a box leaves before all of it is there", kStaged, "fence_proxy_async();\n    warp_sync();", "",
       "missing-proxy-fence"},
  };
  for (const Fault& fault : in_wide_boxes) plant(residual_matmul(1, 150, 72, 136, DType::F32), fault, &schedule);
  const Fault with_infinities[] = {
      {"infinities are not looked for", kSplit, "warp_any(!(zero == 0.0f))", "false", "wrong"},
      {"infinities are looked for in eight columns", kSplit, "for (int j = 0; j < kColumns; j += 4) zero",
       "for (int j = 0; j < 4; j += 4) zero", "wrong"},
      {"infinities are looked for in half of the rows", kSplit, "float zero = sum[2] * 0.0f;", "float zero = 0.0f;",
       "wrong"},
  };
  for (const Fault& fault : with_infinities) plant(extreme_matmul(150, 72, 136), fault, &schedule);
}

TEST_CASE("faults in attention", "[emulated]") {
  const Sample sample = attention(2, 70, 130, 64, 64, DType::F16, false);
  Schedule schedule;
  schedule.kind = Schedule::Kind::Attention;
  schedule.unit = MultiplyUnit::F16;
  schedule.tile = {.m = 64, .n = 64, .k = 64, .warp_m = 16, .warp_n = 64, .stages = 2};
  schedule.threads = 128;
  const Fault faults[] = {
      {"no barrier before keys are used", kAttention, "cta_sync();  // these keys", "// these keys", "shared-race"},
      {"no barrier before values are used", kAttention, "cta_sync();  // and now the values", "// the values",
       "shared-race"},
      {"earlier sums keep their scale", kSoftmax, "sum[h] *= scale[h];", "", "wrong"},
      {"keys behind the last count", kSoftmax, "All || n < n_end ? score", "true ? score", "global-out-of-bounds"},
  };
  for (const Fault& fault : faults) plant(sample, fault, &schedule);
}

TEST_CASE("faults in attention by boxes", "[emulated]") {
  const Sample sample = attention(3, 70, 90, 64, 64, DType::F16, false);
  Schedule schedule;
  schedule.kind = Schedule::Kind::Attention;
  schedule.unit = MultiplyUnit::F16;
  schedule.tile = {
      .m = 128, .n = 64, .k = 64, .warp_m = 64, .warp_n = 64, .stages = 2, .warpgroups = true, .boxes = true};
  schedule.threads = schedule.tile.threads();
  schedule.most_blocks = 1;  // so that it has more tiles than stages
  const Fault faults[] = {
      {"a stage is filled before it is free", kRing, "mbar_wait(empty(), phase ^ 1);", "", "race"},
      {"products do not wait for a stage", kRing, "mbar_wait(full(), phase);", "", "race"},
      {"the next keys are not waited for", kAttentionBoxes, "if (kAhead && steps > 1) memory.wait_keys();", "", "race"},
      {"keys are free while they are multiplied", kAttentionBoxes, "      wgmma_wait<1>();", "",
       "wgmma-accumulator-touched"},
      {"values are free while they are multiplied", kAttentionBoxes,
       "    wgmma_wait<0>();\n    Products::finish_values", "    Products::finish_values",
       "wgmma-accumulator-touched"},
      {"queries are given back twice", kAttentionBoxes, "    memory.queries.wait_full();\n    this->begin",
       "    memory.queries.wait_full();\n    memory.queries.release();\n    this->begin", "deadlock"},
      {"queries are not given back", kAttentionBoxes, "    memory.queries.release();\n    start_values",
       "    start_values", "deadlock"},
      {"the barriers' start is not fenced", kAttentionMemory, "fence_mbar_init();", "", "not-fenced"},
      {"earlier results keep their scale", kAttentionBoxes, "this->rescale(scale);", "", "wrong"},
      {"warpgroups ask for more registers than a block has", kResults, "setmaxnreg_inc<232>();", "setmaxnreg_inc<240>();",
       "too-many-registers"},
      {"every warpgroup takes the same queries", kAttentionBoxes, "memory.query_stage() + group * 64 * 128",
       "memory.query_stage()", "wrong"},
      {"keys behind the last count", kSoftmax, "All || n < n_end ? score", "true ? score", "global-out-of-bounds"},
      {"the wrong batch index", "", "return batch * 560", "return batch * 512", "wrong"},
  };
  for (const Fault& fault : faults) plant(sample, fault, &schedule);
  plant(attention(3, 50, 90, 64, 64, DType::F16, false),
        {"a warpgroup without queries gives nothing back", kAttentionBoxes, "pass(steps - own);", "", "deadlock"}, &schedule);
}

TEST_CASE("faults in attention of f32 by boxes", "[emulated]") {
  Schedule schedule;
  schedule.kind = Schedule::Kind::Attention;
  schedule.unit = MultiplyUnit::Tf32x3;
  schedule.tile = {
      .m = 128, .n = 32, .k = 32, .warp_m = 64, .warp_n = 32, .stages = 2, .warpgroups = true, .boxes = true};
  schedule.threads = schedule.tile.threads();
  schedule.most_blocks = 1;
  const Fault faults[] = {
      {"values are turned before they arrive", kWide, "memory.arriving.wait_full();", "", "race"},
      {"values are turned into a stage that is multiplied", kWide, "memory.values.wait_empty();", "", "race"},
      {"tensor cores do not see what was written", kWide, "fence_proxy_async();\n    warp_sync();", "warp_sync();", "missing-proxy-fence"},
      {"one lane speaks for a warp that is not done", kWide, "fence_proxy_async();\n    warp_sync();", "fence_proxy_async();", "race"},
      {"the small part of the keys is not waited for", kAttentionMemory, "kSplit ? keys_whole() : keys.full()", "keys.full()", "race"},
      {"keys in the order of memory", kWide, "bits_as<u32>(w[2]), bits_as<u32>(w[1])", "bits_as<u32>(w[1]), bits_as<u32>(w[2])", "wrong"},
      {"values have no small part", kWide, "sts(at + Memory::kTurned, out);", "", "uninitialised"},
      {"queries have no small part", kWide, "sts(small_rows() + at, words);", "", "uninitialised"},
      {"small parts of queries are not waited for", kWide, "bar_sync(1 + group, 128);  // and it is all there", "", "race"},
      {"sums of earlier steps keep their scale", kWide, "fmaf(this->acc[i], step_scale[i / 2 % 2], step_sums[i])",
       "this->acc[i] + step_sums[i]", "wrong"},
  };
  for (const Fault& fault : faults) plant(attention(3, 140, 90, 32, 32, DType::F32, false), fault, &schedule);
  plant(attention(3, 140, 90, 32, 32, DType::F32, false),
        {"warps of f32 ask for more registers than a block has", kAttentionBoxes, "setmaxnreg_inc<224>", "setmaxnreg_inc<232>",
         "too-many-registers"}, &schedule);
  const Fault extremes[] = {
      {"mixed terms of an infinite query or key count", kWide, "if (!warp_any(none || other)) break;", "break;", "wrong"},
      {"small parts of queries are written while they are multiplied", kWide, "bar_sync(1 + group, 128);  // all four", "// all four", "race"},
      {"lanes still read what their warp has given back", kWide, "warp_sync();  // all lanes have read the values", "", "race"},
      {"mixed terms of an infinite value count", kWide, "add_carefully(slot);", "{}", "wrong"},
  };
  for (const Fault& fault : extremes) plant(extreme_attention(140, 90, 32, 16), fault, &schedule);
}

TEST_CASE("faults where keys are divided", "[emulated]") {
  const Sample sample = decoding({.batch = 2, .heads = 4, .key_heads = 2, .n = 310});
  Schedule schedule;
  schedule.kind = Schedule::Kind::Attention;
  schedule.unit = MultiplyUnit::F16;
  schedule.tile = {.m = 16, .n = 32, .warp_m = 16, .warp_n = 32, .k_warps = 2, .stages = 3};
  schedule.threads = schedule.tile.threads();
  schedule.cluster_k = 2;
  const Fault faults[] = {
      {"one copy too few is waited for", kAttention, "cp_async_wait<2 * kAhead - 1>();\n      cta_sync();  // these",
       "cp_async_wait<2 * kAhead>();\n      cta_sync();  // these", "race"},
      {"a stage is filled while it is multiplied", kAttention, "slot == 0 ? kAhead : slot - 1", "slot", "race"},
      {"parts of other warps are read too early", kJoined, "sync();\n    if constexpr (kBlocks == 1)",
       "if constexpr (kBlocks == 1)", "race"},
      {"parts of other blocks are read too early", kJoined, "send(m_end - m0);\n      cluster_sync();", "send(m_end - m0);\n      cta_sync();", "race"},
      {"what arrived is overwritten while it is read", kJoined,
       "cluster_wait();  // what has arrived in the round before has been read\n      send(m_end - m0);\n      cluster_sync();",
       "send(m_end - m0);\n      cluster_wait();\n      cluster_sync();", "race"},
      {"another block's part arrives where a stage is", kAttention, "kStages > Joined::kBytes ? kStages : Joined::kBytes", "0u", "race"},
      {"parts keep scales of their own", kJoined, "const float scale = fast_exp2(pair[p][0] - base);", "const float scale = 1;", "wrong"},
      {"a part is taken for another block's", kJoined, "rank * kOwnRows + r % kOwnRows", "r % kOwnRows", "race"},
      {"every block takes the same keys", kAttention, "(Index)cluster_rank() : (Index)0", "(Index)0 : (Index)0", "wrong"},
      {"every warp takes the same keys", kAttention, "return part() * kWarpKeys;", "return 0;", "wrong"},
  };
  for (const Fault& fault : faults) plant(sample, fault, &schedule, true);
}

TEST_CASE("faults where keys that arrive as boxes are divided", "[emulated]") {
  const Sample sample = decoding({.batch = 3, .heads = 4, .key_heads = 2, .n = 310});
  Schedule schedule;
  schedule.kind = Schedule::Kind::Attention;
  schedule.unit = MultiplyUnit::F16;
  schedule.tile = {.m = 16, .n = 32, .warp_m = 16, .warp_n = 32, .k_warps = 2, .stages = 2, .boxes = true};
  schedule.threads = schedule.tile.threads();
  schedule.cluster_k = 2;
  schedule.most_blocks = 4;  // several tiles for each
  Schedule alone = schedule;
  alone.cluster_k = 1;
  const Fault faults[] = {
      {"a stage is filled before it is free", kRing, "mbar_wait(empty(), phase ^ 1);", "", "race"},
      {"products do not wait for a stage", kRing, "mbar_wait(full(), phase);", "", "race"},
      {"a stage is not given back", kKeys, "      memory.ring.release();\n", "", "deadlock"},
      {"a stage is given back before all lanes have read it", kKeys,
       "      products.add_values(memory.values());\n      warp_sync();  // all lanes have read the stage\n      memory.ring.release();",
       "      memory.ring.release();\n      products.add_values(memory.values());", "race"},
      {"the barriers' start is not fenced", kKeys, "    fence_mbar_init();\n", "", "not-fenced"},
      {"queries are multiplied before they are there", kKeys, "    joined.sync();\n    products.hold", "    products.hold", "race"},
      {"the warp that sends leaves out a barrier of the cluster", kKeys, "      cluster_wait();\n      cluster_sync();", "      cluster_wait();",
       "deadlock"},
      {"chunks of a row are read as they lie in memory", kKeys, "(column / 8 ^ row % 8) * 16", "column / 8 * 16", "wrong"},
      {"the values of another panel", kKeys, "memory.values(), value, memory.ring.full(), row", "memory.values(), value, memory.ring.full(), 0",
       "wrong"},
      {"every block takes the same keys", kKeys, "(Index)cluster_rank() : (Index)0", "(Index)0 : (Index)0", "wrong"},
      {"a tile is left out", kKeys, "return gridDim.x / Plan::cluster_k;", "return gridDim.x;", "wrong"},
  };
  for (const Fault& fault : faults) plant(sample, fault, &schedule);
  plant(sample, {"parts of the next tile are written while these are read", kKeys, "    joined.sync();\n    products.hold", "    products.hold", "race"},
        &alone);
}

TEST_CASE("faults in loops over keys that end early", "[emulated]") {
  const Sample sample = decoding({.batch = 3, .heads = 2, .key_heads = 1, .m = 200, .n = 200, .sees = Sees::Causal});
  Schedule schedule;
  schedule.kind = Schedule::Kind::Attention;
  schedule.unit = MultiplyUnit::F16;
  schedule.tile = {.m = 128, .n = 64, .warp_m = 64, .warp_n = 64, .stages = 2, .warpgroups = true, .boxes = true};
  schedule.threads = schedule.tile.threads();
  schedule.most_blocks = 5;
  const Fault faults[] = {
      {"keys that a warpgroup does not see stay full", kAttentionBoxes, "pass(steps - own);", "", "deadlock"},
      {"masks are left out a row too early", "", "int n_end) const {\n    return key_limit(m + 1, n_end);\n  }\n  INGOT_DEV float plain",
       "int n_end) const {\n    return key_limit(m + 60, n_end);\n  }\n  INGOT_DEV float plain", "wrong"},
      {"a block has the tiles of another", kAttentionMemory, "gridDim.x - 1 - blockIdx.x : blockIdx.x", "blockIdx.x - 1 : blockIdx.x", "wrong"},
  };
  for (const Fault& fault : faults) plant(sample, fault, &schedule);
}

TEST_CASE("faults in sliding windows", "[emulated]") {
  constexpr const char* kWindow = "prelude/window.cuh";
  const Sample sample = depthwise(2, 14, 14, 24, 5, 2, DType::F16);
  const Fault faults[] = {
      {"columns outside the image are read", kWindow, "if (row && window.inside_x(x + i))", "if (row)", "wrong"},
      {"rows outside the image are read", kWindow, "if (row && window.inside_x(x + i))", "if (window.inside_x(x + i))",
       "global-out-of-bounds"},
      {"threads behind the last have results", kWindow, "if (at.outer >= outers) return;", "", "global-out-of-bounds"},
      {"the wrong tap", kWindow, "weight[ty * Plan::taps_x + tx][v]", "weight[tx * Plan::taps_x + ty][v]", "wrong"},
      {"the row before is used again", kWindow, "now = next;", "if (r % 3 != 1) now = next;", "wrong"},
  };
  for (const Fault& fault : faults) plant(sample, fault);
}

TEST_CASE("faults in lines of windows", "[emulated]") {
  constexpr const char* kWindow = "prelude/window.cuh";
  const Sample sample = depthwise_lines(3, 14, 14, 24, 5, 1, DType::F16, Combine::Sum);
  const Fault faults[] = {
      {"sums are read before they are all there", kWindow, "      cta_sync();\n      constexpr int kStrips", "      constexpr int kStrips", "shared-race"},
      {"a thread is left out", kWindow, "for (int x = 1; x < kAcross; ++x)", "for (int x = 2; x < kAcross; ++x)", "wrong"},
      {"a strip has the sums of the first", kWindow, "place(strip * kAcross + x, row, group)", "place(x, row, group)", "wrong"},
      {"lines behind the last are stored", kWindow, "if (own.outer >= outers) return;", "", "global-out-of-bounds"},
      {"threads behind the last have results", kWindow, "if (at.outer < outers)\n    window_rows", "window_rows", "global-out-of-bounds"},
      {"the row before is added to", kWindow, "sum[v] = column == 0 ?", "sum[v] = row + column == 0 ?", "wrong"},
  };
  Schedule schedule;  // blocks of four strips, of which the last block has one
  schedule.kind = Schedule::Kind::Window;
  schedule.threads = 96;
  schedule.vector = 2;
  schedule.tile = {.m = 2, .n = 7, .k = 12, .stages = 2};
  for (const Fault& fault : faults) plant(sample, fault, &schedule);
}

TEST_CASE("faults in groups of rows and in stages", "[emulated]") {
  Schedule schedule = tile_schedule(64, 64, 4);
  schedule.unit = MultiplyUnit::Tf32x3;
  schedule.tile = {.m = 64, .n = 64, .k = 32, .warp_m = 32, .warp_n = 32, .k_warps = 2, .stages = 3};
  schedule.threads = schedule.tile.threads();
  const Fault faults[] = {
      {"values are combined before they are all there", kTile,
       "    workers_sync<Plan>();\n#pragma unroll 1\n    for (int i = threadIdx.x; i < kGroups",
       "#pragma unroll 1\n    for (int i = threadIdx.x; i < kGroups", "shared-race"},
      {"a tile begins inside a group", kTile, "* Plan::step_m, at / rows", "* Plan::tile_m, at / rows", "wrong"},
      {"a row is left out", kTile, "for (int j = 1; j < Plan::together; ++j)",
       "for (int j = 2; j < Plan::together; ++j)", "wrong"},
      {"groups behind the last one are stored", kTile, "if (c >= kAcross || m >= m_end || n >= n_end) continue;",
       "if (c >= kAcross || n >= n_end) continue;", "global-out-of-bounds"},
  };
  for (const Fault& fault : faults) plant(largest_of_rows(11, 14, 40, 72, DType::F32), fault, &schedule);
  const Sample stages = two_small_products(3, 72, 20, 33);
  plant(stages, {"the second product reads the first too early", "", "cta_sync();\n", "", "shared-race"});
  plant(stages, {"sums behind the last are stored", "", " && mine)", ")", "race"});
  plant(two_small_products(2, 4096, 4, 33), {"warps add up what others have not left yet", "prelude/reduce.cuh",
                                             "kReduceSlot, v);\n    cta_sync();", "kReduceSlot, v);", "shared-race"});
  plant(two_small_products(40, 4096, 4, 33), {"warps add up another sum", "prelude/reduce.cuh",
                                              "first = threadIdx.x / Threads * kWarps;", "first = 0;", "wrong"});
  const Sample by_cluster = two_small_products(2, 520, 40, 250);
  plant(by_cluster, {"a block reads what another one still writes", "", "  cluster_sync();\n", "", "shared-race"});
  plant(by_cluster, {"a block tells only the first one", "", "sts_all<8, float>", "sts_all<1, float>", "uninitialised"});
  const Sample repeated = two_small_products(2, 120, 40, 250);  // each block of the cluster for itself
  plant(repeated, {"a block reads what its own threads still write", "", "  cta_sync();\n", "", "shared-race"});
  plant(repeated, {"a block leaves sums to others that tell it nothing", "", "+ (int)threadIdx.x / 16;", "+ lane / 16;", "uninitialised"});
  plant(repeated, {"the weights of another pass", "", "held[pass2 * ", "held[0 * ", "wrong"});
}

TEST_CASE("faults in thin products", "[emulated]") {
  plant(matmul(3, 5, 100, 72, false, false, DType::F32, true),
        {"partial sums are read too early", kSkinny, "    cta_sync();\n    for (int i = threadIdx.x",
         "    for (int i = threadIdx.x", "shared-race"});
  plant(matmul(3, 5, 100, 72, false, false, DType::F32, true),
        {"the next batch overwrites them", kSkinny, "i / kWidth, at, sum);\n    }\n    cta_sync();",
         "i / kWidth, at, sum);\n    }", "shared-race"},
        nullptr, true);
  plant(matmul(1, 1, 300, 260, false, true, DType::F32),
        {"warps do not wait for each other", kSkinny, "mine);\n      cta_sync();", "mine);", "shared-race"});
  plant(matmul(1, 1, 301, 260, false, true, DType::F32),
        {"columns behind the last are read", kSkinny, "if (first + c < columns) {", "if (true) {",
         "global-out-of-bounds"});
}

TEST_CASE("faults in reductions", "[emulated]") {
  const Sample wide = softmax(7, 1000, DType::F32);
  plant(wide, {"no barrier in a block reduction", kReduce, "    cta_sync();\n    v = warp_reduce<kWarps>",
               "    v = warp_reduce<kWarps>", "shared-race"});
  plant(wide, {"two reductions share one scratch", "", "shared + 512", "shared", "shared-race"});
  plant(wide, {"the tail of a row is not guarded", "", "j0 < 1000)", "j0 < 1024)", "global-out-of-bounds"});
  plant(wide, {"only one lane of two takes part", kReduce, "v = op(v, shfl_xor(v, mask));",
               "if (threadIdx.x % 2) v = op(v, shfl_xor(v, mask));", "deadlock"});
  plant(wide, {"the lanes of a warp do different things", kReduce, "v = op(v, shfl_xor(v, mask));",
               "v = threadIdx.x % 2 ? op(v, shfl_xor(v, mask)) : op(v, shfl_down(v, mask));", "warp-diverged"});
  plant(wide, {"the sum misses the last group", "", "l0 < 1000)", "l0 < 996)", "wrong"});
  plant(wide, {"a step of a held row stands for another", "", "= held[part1]", "= held[0]", "wrong"});
  plant(wide, {"a vector load off its alignment", "", "load_vec<4>(x + (row * 1000 + j0))",
               "load_vec<4>(x + (row * 1000 + j0 + 1))", "misaligned"});
}

TEST_CASE("faults around scratch and points", "[emulated]") {
  const Sample scratch = softmax_scratch(6, 2500);
  plant(scratch, {"no barrier between filling and reading scratch", "", "cta_sync();\n", "", "shared-race"});
  plant(scratch, {"scratch is longer than the block's memory", "", "j0 < 2500;", "j0 < 25000;", "out-of-bounds"});
  plant(broadcast_add(5, 7, DType::F32),
        {"points are not guarded", "", "if (point >= total) return;", "", "global-out-of-bounds"});
  plant(shifted_pad(13, 40), {"a padded element is loaded anyway", "", "3 <= ", "-300 <= ", "wrong"});
  plant(max_pool(2, 5, 9, 11, false), {"a window leaves the image unseen", "", "sub1 < 9", "sub1 < 10", "wrong"});
  plant(gather_rows(19, 10, 33),
        {"an index from data is not checked", "", "0 <= sel1 && sel1 < 10 ?", "true ?", "global-out-of-bounds"});
  plant(integer_zoo(513, DType::I32), {"division by zero", "prelude/integer.cuh",
                                       "if (b == 0) return 0;\n  if constexpr", "if constexpr", "undefined-behaviour"});
}

TEST_CASE("a launch that failed leaves the emulator usable", "[emulated]") {
  const Sample sample = broadcast_add(5, 7, DType::F32);
  EmittedKernel good = planned_or_first(sample, nullptr), bad = good;
  bad.source = replace_all(bad.source, "if (point >= total) return;", "");
  for (int i = 0; i < 3; ++i) {
    const auto failed = run_sample(sample, bad);
    REQUIRE(failed);
    CHECK_FALSE(failed.value().completed);
    const auto passed = run_sample(sample, good);
    REQUIRE(passed);
    CHECK(passed.value().agrees(sample));
  }
}

TEST_CASE("the driver refuses what a driver refuses", "[emulated]") {
  using namespace ingot::runtime::cuda;
  const DriverApi& api = emulation::emulated_driver();
  Module module = nullptr;
  CHECK(api.module_load_data(&module, "this is no kernel") == kErrorInvalidImage);
  CHECK(api.error(kErrorInvalidImage, "module_load_data").message.find("host compiler") != std::string::npos);
  const auto image = emulation::emulate_module(
      "#include \"prelude/types.cuh\"\nextern \"C\" __global__ void k() {}\nINGOT_ENTRY(k)\n");
  REQUIRE(image);
  REQUIRE(api.module_load_data(&module, image.value().data()) == kSuccess);
  Function function = nullptr;
  CHECK(api.module_get_function(&function, module, "other") == kErrorNotFound);
  REQUIRE(api.module_get_function(&function, module, "k") == kSuccess);
  CHECK(api.launch_kernel(function, 0, 1, 1, 32, 1, 1, 0, nullptr, nullptr, nullptr) == kErrorInvalidValue);
  CHECK(api.launch_kernel(function, 1, 1, 1, 32, 1, 1, 0, nullptr, nullptr, nullptr) == kSuccess);
  CHECK(api.module_unload(module) == kSuccess);
}

TEST_CASE("the emulated device runs kernels by their text", "[emulated]") {
  auto opened = emulation::open_emulator_device();
  REQUIRE(opened);
  runtime::Device& device = *opened.value();
  const EmittedKernel emitted = planned_or_first(broadcast_add(3, 4, DType::F32), nullptr);
  runtime::KernelInfo info;
  info.name = emitted.name;
  info.source = emitted.source;
  info.threads = emitted.threads;
  info.shared_bytes = emitted.shared_bytes;
  const auto kernel = device.load(info);
  REQUIRE(kernel);
  const float x[] = {1, -2, 3, -4, 5, 6, 7, 8, 9, 10, 11, 12}, bias[] = {0.5f, 0.5f, 0, -20};
  float y[12] = {};
  void* buffers[3];
  for (void*& b : buffers) {
    auto memory = device.allocate(sizeof x);
    REQUIRE(memory);
    b = memory.value();
  }
  REQUIRE(device.copy_to_device(buffers[0], x, sizeof x, nullptr));
  REQUIRE(device.copy_to_device(buffers[1], bias, sizeof bias, nullptr));
  const int64_t dims[] = {3};
  REQUIRE(device.launch(*kernel.value(), {buffers, dims, {1, 1, 1}, {}}, nullptr));
  REQUIRE(device.copy_to_host(y, buffers[2], sizeof y, nullptr));
  REQUIRE(device.synchronize(nullptr));
  CHECK(y[0] == 1.5f);
  CHECK(y[1] == 0.0f);
  CHECK(y[10] == 11.0f);
  CHECK(y[11] == 0.0f);
  for (void* b : buffers) device.release(b);
}

TEST_CASE("faults in sums over parts of rows, and in what needs them", "[emulated]") {
  const testing::FusedGraph g = testing::norm_graphs()[0];
  std::vector<Sample> sums, needs;
  for (const Sample& sample : samples_of(g.name, g.text, DType::F16)) {
    const Contract* c = sample.kernel.contract();
    if (c && c->parts.width > 0) sums.push_back(sample);
    else if (c && !c->rows.empty()) needs.push_back(sample);
  }
  REQUIRE((!sums.empty() && !needs.empty()));
  Schedule staged = boxes(MultiplyUnit::F16, 64, 64, 64, 64, 3, true), together = shared_boxes(MultiplyUnit::F16, 64, 64, 64, 64, 2, 3);
  plant(sums[0], {"sums of rows behind the last", kRowParts, "lane % 4 == 0 && row < m_end", "lane % 4 == 0", "global-out-of-bounds"}, &staged);
  plant(sums[0], {"half of a row", kRowParts, "all[s] += shfl_xor(all[s], 2);", "", "wrong"}, &staged);
  plant(sums[0], {"what the part before left", kStaged, "sums.clear();", "", "wrong"}, &staged);
  plant(sums[0], {"sums before the values are there", kRowParts, "values[v]);\n  }\n  workers_sync<Plan>();", "values[v]);\n  }", "race"}, &together);
  plant(sums[0], {"sums of the rows that another block has", kRowParts, "first + i / kLanes / kParts", "i / kLanes / kParts", "wrong"}, &together);
  plant(needs[0], {"values of another row", kStaged, "rows[p % kDown * 2 + k % 2]", "rows[p % kDown * 2]", "wrong"}, &staged);
  plant(needs[0], {"values of rows are not waited for", kRowParts, "mbar_wait(full(count % 2), count / 2 & 1);", "", "race"}, &staged);
  plant(needs[0], {"values of rows are overwritten", kRowParts, "mbar_wait(empty(buffer), (count / 2 & 1) ^ 1);", "", "race"}, &staged);
  plant(needs[0], {"values of the rows that another block finishes", kBoxes, "at.m + (Index)cluster_rank() * kRows", "at.m", "uninitialised"}, &together);
}
