// Scaled dot-product attention over Compose: what the standard's Attention and the contributed ones share.
#pragma once

#include "compiler/ops/compose.h"

namespace ingot {

/// Operands with heads apart: q [B, Hq, S, D], k [B, Hkv, T, D], v [B, Hkv, T, E]; Hq is a multiple of Hkv.
struct AttentionParts {
  ValueId q, k, v;
  double scale = 0;            // 0: 1 / sqrt(D)
  double softcap = 0;          // 0: none
  ValueId bias{};              // added to the scores [B, Hq, S, T], by broadcasting; may be invalid
  ValueId keep{};              // bool, broadcast likewise: false scores count as -inf; may be invalid
  DType softmax_type = DType::F32;
  bool rows_see = false;       // `keep` leaves at least one key to each row
};
struct AttentionValues {
  ValueId y;                            // [B, Hq, S, E]
  ValueId raw, capped, biased, softmax; // the scores at each stage
};
/// Rows without any score left give zeros.
AttentionValues attend(Compose& g, const AttentionParts& p);

/// [B, S, heads*D] to [B, heads, S, D] and back.
ValueId split_heads(Compose& g, ValueId x, const Expr& heads);
ValueId merge_heads(Compose& g, ValueId x);
/// bool [S, T]: query row + offset may see column.
ValueId causal_mask(Compose& g, const Expr& rows, const Expr& columns, const Expr& offset);
/// Rotates the first `rotated` elements of the last axis of x [B, H, S, D]; cos and sin broadcast as [B, 1, S, rotated/2].
ValueId rotate(Compose& g, ValueId x, ValueId cos, ValueId sin, const Expr& rotated, bool interleaved);

}  // namespace ingot
