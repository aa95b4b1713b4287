// Stages in shared memory that boxes arrive in, in turn.
#pragma once
#include "prelude/sync.cuh"
#include "prelude/tma.cuh"

/// A ring of stages: the barriers say when one is full, and when it may be filled again.
template <int Stages>
struct StageRing {
  u32 barriers, slot = 0, phase = 0;

  INGOT_DEV explicit StageRing(u32 at) : barriers(at) {}
  INGOT_DEV u32 full() const { return barriers + slot * 16; }
  INGOT_DEV u32 empty() const { return full() + 8; }
  /// By one thread. The sender is one writer, else warps are.
  INGOT_DEV void start(u32 readers, u32 writers = 1) const {
    for (int s = 0; s < Stages; ++s) {
      mbar_init(barriers + s * 16, writers);
      mbar_init(barriers + s * 16 + 8, readers);
    }
  }
  INGOT_DEV void advance() {
    if (++slot == Stages) {
      slot = 0;
      phase ^= 1;
    }
  }
  INGOT_DEV void wait_full() const { mbar_wait(full(), phase); }
  INGOT_DEV void wait_empty() const { mbar_wait(empty(), phase ^ 1); }
  /// By the sender: the stage may be filled with so many bytes.
  INGOT_DEV void open(u32 bytes) const {
    wait_empty();
    mbar_arrive_expect_tx(full(), bytes);
  }
  /// By all lanes of a warp that has read the stage.
  INGOT_DEV void release() const {
    if (threadIdx.x % 32 == 0) mbar_arrive(empty());
  }
};

/// The boxes of a stage: panels of rows, from `row` on.
template <int Panels, int Columns, u32 PanelBytes>
INGOT_DEV void send_panels(u32 to, const TensorMap* map, u32 barrier, int row, int start) {
#pragma unroll
  for (int p = 0; p < Panels; ++p) tma_load3(to + p * PanelBytes, map, barrier, p * Columns, row, start);
}
