// What the masks of an attention say of its keys, and the scale of its logits: for every backend's loop over keys.
#pragma once

#include <optional>

#include "codegen/kernel/kernel.h"

namespace ingot {

/// Over the batch axes and the row (the first axis of the queries): keys from there on have weights of zero in rows up to this
/// one; it may be less than 0 or more than there are; invalid when that is not known. A mask that is finite counts where the
/// logits of 16-bit queries and keys cannot reach it and the first key is not masked.
Expr reach_of(const Attend& attend);
/// Later queries may see more keys.
bool grows_with_row(const Attend& attend, const Expr& reach);
/// Keys before `bound` (over the batch axes and the row) are masked in no row from this one on, and their logits are `plain`;
/// invalid where no mask is a comparison of the key's position.
struct SeenKeys {
  Expr bound, plain;
  bool is_all = false;  // the logits of all other keys of the row are -inf
};
SeenKeys seen_keys(const Attend& attend, const Expr& logit);
/// c, where the logit is c * dot for a positive number c.
std::optional<double> scale_alone(const Expr& score, const Expr& dot);
/// The same logit as scale * logit, with scale > 0: masks of -inf stay what they are.
struct ScaledLogit {
  double scale = 1;
  Expr logit;
};
ScaledLogit split_scale(const Expr& score, const Expr& dot);

}  // namespace ingot
