// What a kernel must satisfy before a backend may print it. Lowering is checked with it, always: it is cheap.
#pragma once

#include "codegen/kernel/kernel.h"
#include "compiler/support/result.h"

namespace ingot {

/// Names are bound once and before use; loads and stores name buffers that exist; indices are i64 and conditions Bool; no Read
/// is left; stores go to outputs or scratch; a Contract stands alone over an empty domain, its operands depend on the axes
/// that they may, and its epilogue only binds, stores and branches. Error: the first rule broken, as Internal.
Status verify(const Kernel& kernel);

}  // namespace ingot
