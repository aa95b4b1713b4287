// Faults planted into a generated kernel or into the prelude, which the emulator must report.
#pragma once

#include <catch2/catch.hpp>

#include <fmt/format.h>

#include "codegen/cuda/cuda_backend.h"
#include "codegen/cuda/prelude.h"
#include "codegen/text/kernel_name.h"
#include "tests/emulation/run_sample.h"

namespace ingot::samples {

/// A planted fault: `before` becomes `after`, in the kernel's text or in a prelude file.
struct Fault {
  const char* what;
  const char* file;  // "" for the kernel itself, else "prelude/...cuh"
  const char* before;
  const char* after;
  const char* report;  // a word of one report; "wrong" or "inexact" for wrong numbers only
};

/// Puts the text of a prelude file in place of its #include, so that it can be changed.
inline std::string inlined(std::string source, const std::string& file) {
  const std::string line = fmt::format("#include \"{}\"\n", file);
  if (source.find(line) == std::string::npos) {
    // Included by another prelude file: ahead of everything, where its own #pragma once does not matter.
    const size_t first = source.find("#include");
    source.insert(first, line);
  }
  std::string text(prelude_file(file));
  text = replace_all(text, "#pragma once\n", "");
  const size_t at = source.find(line) + line.size();  // further files that include it find it there
  return replace_all(source.substr(0, at), line, text) + replace_all(source.substr(at), line, "");
}

inline EmittedKernel planned_or_first(const Sample& sample, const Schedule* schedule) {
  if (!schedule) {
    auto forms = emit_cuda(sample.kernel, cuda_traits(90));
    if (!forms) FAIL(forms.error().to_string());
    return forms.value().front();
  }
  auto emitted = emit_cuda(sample.kernel, cuda_traits(90), *schedule);
  if (!emitted) FAIL(emitted.error().to_string());
  return emitted.value();
}

inline bool is_reported(const Outcome& outcome, const std::string& word) {
  if (word == "wrong") return outcome.worst_error > 1e-3;
  if (word == "inexact") return outcome.worst_error > 1e-5;
  for (const std::string& f : outcome.faults)
    if (f.find(word) != std::string::npos) return true;
  return false;
}

constexpr const char* kMma = "prelude/contraction_mma.cuh";
constexpr const char* kWgmma = "prelude/contraction_wgmma.cuh";
constexpr const char* kWindow = "prelude/window.cuh";
constexpr const char* kBoxes = "prelude/contraction_boxes.cuh";
constexpr const char* kChanged = "prelude/changed_fragment.cuh";  // included by kBoxes and kRowsOfProduct
constexpr const char* kRowsOfProduct = "prelude/contraction_rows.cuh";
constexpr const char* kRowSource = "prelude/row_source.cuh";  // included by kRowsOfProduct
constexpr const char* kStaged = "prelude/staged_results.cuh";  // included by kBoxes and kRowsOfProduct
constexpr const char* kRowParts = "prelude/row_parts.cuh";  // included by kBoxes
constexpr const char* kSplit = "prelude/split_product.cuh";  // included by kBoxes
constexpr const char* kProduct = "prelude/wgmma_product.cuh";  // included by kWgmma and kBoxes
constexpr const char* kAttention = "prelude/attention.cuh";
constexpr const char* kMmaOperand = "prelude/mma_operand.cuh";  // included by kMma
constexpr const char* kResults = "prelude/warp_results.cuh";    // included by kBoxes and kAttentionMemory
constexpr const char* kAttentionBoxes = "prelude/attention_boxes.cuh";
constexpr const char* kJoined = "prelude/joined_parts.cuh";  // included by kAttention
constexpr const char* kWide = "prelude/attention_wide.cuh";  // included by kAttentionBoxes
constexpr const char* kAttentionMemory = "prelude/attention_memory.cuh";  // included by kAttentionBoxes and kWide
constexpr const char* kKeys = "prelude/attention_keys.cuh";
constexpr const char* kRing = "prelude/stage_ring.cuh";  // included by kAttentionMemory and kKeys
constexpr const char* kSoftmax = "prelude/online_softmax.cuh";  // included by both forms of attention
constexpr const char* kTile = "prelude/contraction_tile.cuh";   // included by kMma

inline void plant(const Sample& sample, const Fault& fault, const Schedule* schedule = nullptr,
           bool one_block_for_all_batches = false) {
  INFO(fault.what << " in " << sample.name);
  EmittedKernel emitted = planned_or_first(sample, schedule);
  std::string source = emitted.source;
  bool is_there = !*fault.file;
  for (const char* file : {kMma, kWgmma, kBoxes, kRowsOfProduct, kRowSource, kStaged, kRowParts, kKeys, kAttention, kJoined,
                           kAttentionBoxes, kWide, kAttentionMemory, kSplit, kProduct,
                           kChanged}) {  // what it includes is planted into its text
    if (source.find(fmt::format("#include \"{}\"", file)) == std::string::npos) continue;
    source = inlined(source, file);
    is_there |= file == fault.file;
  }
  if (!is_there) source = inlined(source, fault.file);
  REQUIRE(source.find(fault.before) != std::string::npos);
  emitted.source = replace_all(source, fault.before, fault.after);
  if (one_block_for_all_batches) emitted.grid[2] = 1;
  bool found = false;
  std::string seen;
  for (uint64_t seed = 1; seed <= 3 && !found; ++seed) {
    const auto outcome = run_sample(sample, emitted, seed);
    if (!outcome) FAIL(outcome.error().to_string());
    found = is_reported(outcome.value(), fault.report);
    for (const std::string& f : outcome.value().faults) seen += "\n  " + f;
    seen += fmt::format("\n  error {}", outcome.value().worst_error);
  }
  INFO("reported instead:" << seen);
  CHECK(found);
}

}  // namespace ingot::samples
