#include "codegen/llvm/contract_emitter.h"

#include "codegen/llvm/math_emitter.h"
#include "compiler/expr/simplify.h"

namespace ingot::cpu {

using llvm::Value;

void ContractEmitter::emit_task(Value* task, Value* scratch) {
  auto& b = ir_.b;
  ExprEmitter::Scope scope(ex_);
  c_ = part_of_scratch(scratch, p_.c_offset);
  a_ = part_of_scratch(scratch, p_.a_offset);
  b_ = part_of_scratch(scratch, p_.b_offset);
  Value* groups = ex_.value(p_.panel_groups);
  Value* blocks = ex_.value(p_.tile_blocks);
  Value* rest = b.CreateUDiv(task, groups);
  Value* group = b.CreateSub(task, b.CreateMul(rest, groups));
  Value* batch = b.CreateUDiv(rest, blocks);
  Value* block = b.CreateSub(rest, b.CreateMul(batch, blocks));
  bind_position(ir_, ex_, p_.c.batch, batch);
  Value* first_tile = b.CreateMul(block, ir_.i64(p_.tiles_per_task));
  Value* last_tile = ir_.min(b.CreateAdd(first_tile, ir_.i64(p_.tiles_per_task)), ex_.value(p_.tiles.count));
  if (!p_.dot && !p_.a_direct && !p_.k_blocked) pack_a(first_tile, last_tile, nullptr, ex_.value(p_.k));
  Value* first_panel = b.CreateMul(group, ir_.i64(p_.panels_per_task));
  Value* last_panel = ir_.min(b.CreateAdd(first_panel, ir_.i64(p_.panels_per_task)), ex_.value(p_.panels));
  if (!p_.k_blocked) return emit_panels(first_panel, last_panel, first_tile, last_tile);
  ir_.loop(first_panel, last_panel, 1, [&](Value* number) {
    ExprEmitter::Scope panel_scope(ex_);
    emit_blocked_panel(panel_at(number), first_tile, last_tile);
  });
}

ContractEmitter::Panel ContractEmitter::panel_at(Value* number) {
  Panel panel;
  panel.first = ir_.b.CreateMul(number, ir_.i64(p_.panel()));
  panel.count = ir_.min(ir_.b.CreateSub(ex_.value(p_.n), panel.first), ir_.i64(p_.panel()));
  panel.packed = b_;
  return panel;
}

/// All panels are packed first: each row tile of a is then used for all of them while it is in cache.
void ContractEmitter::emit_panels(Value* first_panel, Value* last_panel, Value* first_tile, Value* last_tile) {
  Value* k_count = ex_.value(p_.k);
  const auto panel_of = [&](Value* number) {
    Panel panel = panel_at(number);
    Value* place = ir_.b.CreateSub(number, first_panel);
    panel.packed = element_at(b_, ir_.b.CreateMul(place, ir_.i64(p_.packed_panel())));
    return panel;
  };
  if (!p_.dot && !p_.b_direct)
    ir_.loop(first_panel, last_panel, 1, [&](Value* number) {
      ExprEmitter::Scope scope(ex_);
      pack_b(panel_of(number), nullptr, k_count);
    });
  ir_.loop(first_tile, last_tile, 1, [&](Value* tile) {
    ir_.loop(first_panel, last_panel, 1, [&](Value* number) {
      ExprEmitter::Scope scope(ex_);
      const Panel panel = panel_of(number);
      multiply_tile(panel, tile, first_tile, k_count, c_, false);
      epilogue(panel, tile_row(tile), tile_rows(tile), c_);
    });
  });
}

/// Blocks of k in turn; the sums of all tiles wait in scratch.
void ContractEmitter::emit_blocked_panel(const Panel& panel, Value* first_tile, Value* last_tile) {
  auto& b = ir_.b;
  Value* first_row = tile_row(first_tile);
  const auto c_of = [&](Value* tile) {
    return element_at(c_, b.CreateMul(b.CreateSub(tile_row(tile), first_row), ir_.i64(p_.panel())));
  };
  Value* rows = b.CreateSub(tile_row(last_tile), first_row);
  Value* bytes = b.CreateMul(rows, ir_.i64(p_.panel() * static_cast<int64_t>(size_of(p_.type))));
  b.CreateMemSet(c_, b.getInt8(0), bytes, llvm::MaybeAlign(64));
  Value* k = ex_.value(p_.k);
  ir_.loop(ir_.i64(0), k, p_.k_block, [&](Value* k_first) {
    ExprEmitter::Scope scope(ex_);
    Value* k_count = ir_.min(b.CreateSub(k, k_first), ir_.i64(p_.k_block));
    ex_.bind(Expr::symbol("k_first"), k_first);  // read by the direct operands
    if (!p_.b_direct) pack_b(panel, k_first, k_count);
    if (!p_.a_direct) pack_a(first_tile, last_tile, k_first, k_count);
    ir_.loop(first_tile, last_tile, 1, [&](Value* tile) {
      ExprEmitter::Scope tile_scope(ex_);
      multiply_tile(panel, tile, first_tile, k_count, c_of(tile), true);
    });
  });
  ir_.loop(first_tile, last_tile, 1, [&](Value* tile) {
    ExprEmitter::Scope scope(ex_);
    epilogue(panel, tile_row(tile), tile_rows(tile), c_of(tile));
  });
}

Value* ContractEmitter::tile_row(Value* tile) {
  auto& b = ir_.b;
  const RowTiles& t = p_.tiles;
  if (t.even) {
    Value* extra = t.longer ? ir_.min(tile, ir_.i64(t.longer)) : ir_.i64(0);
    return b.CreateAdd(b.CreateMul(tile, ir_.i64(t.base)), extra);
  }
  Value* m = ex_.value(p_.m);
  Value* full = b.CreateUDiv(m, ir_.i64(t.full));
  Value* in_full = ir_.min(tile, full);
  Value* row = b.CreateMul(in_full, ir_.i64(t.full));
  Value* rest = b.CreateSub(tile, in_full);
  if (t.full <= 4) return b.CreateAdd(row, rest);
  Value* fours = b.CreateUDiv(b.CreateSub(m, b.CreateMul(full, ir_.i64(t.full))), ir_.i64(4));
  Value* in_fours = ir_.min(rest, fours);
  return b.CreateAdd(row, b.CreateAdd(b.CreateMul(in_fours, ir_.i64(4)), b.CreateSub(rest, in_fours)));
}

Value* ContractEmitter::tile_rows(Value* tile) {
  return ir_.b.CreateSub(tile_row(ir_.b.CreateAdd(tile, ir_.i64(1))), tile_row(tile));
}

/// Calls body once for each row count that tiles have, in code that runs when the tile has it.
void ContractEmitter::for_variant(Value* tile, const std::function<void(int)>& body) {
  const std::vector<int>& variants = p_.tiles.variants;
  const std::function<void(size_t)> pick = [&](size_t i) {
    if (i + 1 == variants.size()) return body(variants[i]);
    ir_.if_else(
        ir_.b.CreateICmpEQ(tile_rows(tile), ir_.i64(variants[i])),
        [&] {
          ExprEmitter::Scope scope(ex_);
          body(variants[i]);
        },
        [&] {
          ExprEmitter::Scope scope(ex_);
          pick(i + 1);
        });
  };
  pick(0);
}

void ContractEmitter::pack_a(Value* first_tile, Value* last_tile, Value* k_first, Value* k_count) {
  ir_.loop(first_tile, last_tile, 1, [&](Value* tile) {
    ExprEmitter::Scope scope(ex_);
    Value* row = tile_row(tile);
    Value* offset = ir_.b.CreateMul(ir_.b.CreateSub(row, tile_row(first_tile)), k_count);
    for_variant(tile, [&](int rows) {
      pack_.emit({p_.c.a, p_.c.m, p_.c.k, p_.width, row, ir_.i64(rows), k_first, k_first ? k_count : nullptr,
                  element_at(a_, offset), rows});
    });
  });
}

void ContractEmitter::pack_b(const Panel& panel, Value* k_first, Value* k_count) {
  ExprEmitter::Scope scope(ex_);
  pack_.emit({p_.c.b, p_.c.n, p_.c.k, p_.width, panel.first, panel.count, k_first, k_first ? k_count : nullptr,
              panel.packed, p_.panel()});
}

ContractEmitter::Operand ContractEmitter::a_operand(Value* tile, Value* first_tile, int rows, Value* k_count) {
  auto& b = ir_.b;
  Value* row = tile_row(tile);
  if (!p_.a_direct) {
    Value* offset = b.CreateMul(b.CreateSub(row, tile_row(first_tile)), k_count);
    return {element_at(a_, offset), ir_.i64(rows), ir_.i64(1), false};
  }
  const DirectOperand& d = *p_.a_direct;
  Operand out{nullptr, ex_.value(d.k_step), ex_.value(d.side_step), false};
  Value* index = b.CreateAdd(ex_.value(d.origin), b.CreateMul(row, out.side_step));
  if (p_.k_blocked) index = b.CreateAdd(index, b.CreateMul(ex_.value(Expr::symbol("k_first")), out.k_step));
  out.pointer = ex_.address(d.buffer, index);
  return out;
}

ContractEmitter::Operand ContractEmitter::b_operand(const Panel& panel) {
  if (!p_.b_direct) return {panel.packed, ir_.i64(p_.panel()), ir_.i64(1), true};
  auto& b = ir_.b;
  const DirectOperand& d = *p_.b_direct;
  Operand out{nullptr, ex_.value(d.k_step), ir_.i64(1), false};
  Value* index = b.CreateAdd(ex_.value(d.origin), panel.first);
  if (p_.k_blocked) index = b.CreateAdd(index, b.CreateMul(ex_.value(Expr::symbol("k_first")), out.k_step));
  out.pointer = ex_.address(d.buffer, index);
  return out;
}

void ContractEmitter::multiply_tile(const Panel& panel, Value* tile, Value* first_tile, Value* k_count, Value* c,
                                    bool accumulate) {
  for_variant(tile, [&](int rows) {
    if (p_.dot) return dot_tile(panel, tile_row(tile), rows, c);
    const Operand a = a_operand(tile, first_tile, rows, k_count);
    const Operand b = b_operand(panel);
    const auto run = [&](int vectors) { multiply(panel, rows, vectors, a, b, k_count, c, accumulate); };
    if (p_.tail_vectors == p_.vectors) return run(p_.vectors);
    ir_.if_else(
        ir_.b.CreateICmpSGT(panel.count, ir_.i64(p_.tail_vectors * p_.width)), [&] { run(p_.vectors); },
        [&] { run(p_.tail_vectors); });
  });
}

/// Calls a function of its own for the register tile: values that live across it would take registers from the sums.
void ContractEmitter::multiply(const Panel& panel, int rows, int vectors, const Operand& a, const Operand& b,
                               Value* k_count, Value* c, bool accumulate) {
  auto& builder = ir_.b;
  const std::vector<Value*> args = {a.pointer, a.k_step, a.side_step, b.pointer, b.k_step, k_count, c, panel.count};
  std::vector<llvm::Type*> types;
  for (Value* v : args) types.push_back(v->getType());
  const std::string name = ir_.function->getName().str() + "." + std::to_string(rows) + "x" + std::to_string(vectors);
  auto* type = llvm::FunctionType::get(builder.getVoidTy(), types, false);
  auto* f = llvm::Function::Create(type, llvm::Function::InternalLinkage, name, ir_.module);
  f->addFnAttr(llvm::Attribute::NoInline);
  f->setDoesNotThrow();
  for (unsigned i = 0; i < args.size(); ++i)
    if (args[i]->getType()->isPointerTy()) f->addParamAttr(i, llvm::Attribute::NoAlias);
  builder.CreateCall(f, args);
  // Steps and counts that are constants stay constants inside.
  const auto inner = [&](unsigned i) { return llvm::isa<llvm::Constant>(args[i]) ? args[i] : f->getArg(i); };
  const IrTools::FunctionScope scope(ir_, f);
  multiply_body(inner(7), rows, vectors, {inner(0), inner(1), inner(2), a.aligned},
                {inner(3), inner(4), b.side_step, b.aligned}, inner(5), inner(6), accumulate);
  builder.CreateRetVoid();
}

/// The register tile: rows x vectors sums, one vector row of b and one broadcast element of a at a time.
void ContractEmitter::multiply_body(Value* columns, int rows, int vectors, const Operand& a, const Operand& b,
                                    Value* k_count, Value* c, bool accumulate) {
  std::vector<Value*> sums, masks(static_cast<size_t>(vectors), nullptr);
  const auto at = [&](int i, int v) { return element_at(c, ir_.i64(i * p_.panel() + v * p_.width)); };
  for (int i = 0; i < rows; ++i)
    for (int v = 0; v < vectors; ++v) {
      Value* start = accumulate ? load_sum(at(i, v)) : llvm::Constant::getNullValue(vector_type());
      sums.push_back(ir_.variable(vector_type()));
      ir_.b.CreateStore(start, sums.back());
    }
  const auto n = p_.n.as_int();
  if (p_.b_direct && !(n && *n % p_.panel() == 0))
    for (int v = 0; v < vectors; ++v)
      masks[static_cast<size_t>(v)] = ir_.first_lanes(ir_.b.CreateSub(columns, ir_.i64(v * p_.width)), p_.width);
  const int unroll = rows * vectors >= 16 ? 2 : 4;
  Value* middle = ir_.b.CreateMul(ir_.b.CreateUDiv(k_count, ir_.i64(unroll)), ir_.i64(unroll));
  ir_.loop(ir_.i64(0), middle, unroll, [&](Value* k) {
    for (int u = 0; u < unroll; ++u)
      multiply_step(rows, vectors, a, b, u ? ir_.b.CreateAdd(k, ir_.i64(u)) : k, masks, sums);
  });
  ir_.loop(middle, k_count, 1, [&](Value* k) { multiply_step(rows, vectors, a, b, k, masks, sums); });
  for (int i = 0; i < rows; ++i)
    for (int v = 0; v < vectors; ++v)
      ir_.b.CreateAlignedStore(ir_.b.CreateLoad(vector_type(), sums[static_cast<size_t>(i * vectors + v)]), at(i, v),
                               element_align());
}

void ContractEmitter::multiply_step(int rows, int vectors, const Operand& a, const Operand& b, Value* k,
                                    const std::vector<Value*>& masks, const std::vector<Value*>& sums) {
  auto& builder = ir_.b;
  llvm::Type* element = ir_.scalar(p_.type);
  const llvm::Align wide(size_of(p_.type) * static_cast<size_t>(p_.width));
  Value* b_row = element_at(b.pointer, builder.CreateMul(k, b.k_step));
  std::vector<Value*> columns;
  for (int v = 0; v < vectors; ++v) {
    Value* p = element_at(b_row, ir_.i64(v * p_.width));
    Value* mask = masks[static_cast<size_t>(v)];
    if (mask)
      columns.push_back(builder.CreateMaskedLoad(vector_type(), p, element_align(), mask,
                                                 llvm::Constant::getNullValue(vector_type())));
    else columns.push_back(builder.CreateAlignedLoad(vector_type(), p, b.aligned ? wide : element_align()));
  }
  Value* a_row = element_at(a.pointer, builder.CreateMul(k, a.k_step));
  for (int i = 0; i < rows; ++i) {
    Value* p = element_at(a_row, builder.CreateMul(ir_.i64(i), a.side_step));
    Value* x = ir_.widen(builder.CreateAlignedLoad(element, p, element_align()), p_.width);
    for (int v = 0; v < vectors; ++v) {
      Value* sum = sums[static_cast<size_t>(i * vectors + v)];
      Value* old = builder.CreateLoad(vector_type(), sum);
      builder.CreateStore(multiply_add(x, columns[static_cast<size_t>(v)], old), sum);
    }
  }
}

Value* ContractEmitter::multiply_add(Value* a, Value* x, Value* sum) {
  if (is_float(p_.type)) return ir_.fma(a, x, sum);
  return combine_values(ir_, Combine::Sum, p_.type, sum, combine_values(ir_, Combine::Product, p_.type, a, x));
}

void ContractEmitter::epilogue(const Panel& panel, Value* row, Value* rows, Value* c) {
  ir_.loop(ir_.i64(0), rows, 1, [&](Value* i) {
    ExprEmitter::Scope scope(ex_);
    bind_position(ir_, ex_, p_.c.m, ir_.b.CreateAdd(row, i));
    Value* c_row = element_at(c, ir_.b.CreateMul(i, ir_.i64(p_.panel())));
    for_runs(ir_, ex_, p_.c.n, panel.first, panel.count,
             [&](Value* offset, Value* start, Value* length) { epilogue_run(c_row, offset, start, length); });
  });
}

/// `length` sums from c_row[offset] on, which belong to the positions from `start` on of the last n axis.
void ContractEmitter::epilogue_run(Value* c_row, Value* offset, Value* start, Value* length) {
  auto& b = ir_.b;
  const std::string& symbol = p_.c.n.back().var.name();
  const auto step = [&](Value* s, Value* mask) {
    ExprEmitter::LaneScope lanes(ex_, {symbol, p_.width, b.CreateAdd(start, s), mask});
    ex_.bind(p_.c.acc, load_sum(element_at(c_row, b.CreateAdd(offset, s))));
    stmts_.emit_body(p_.c.epilogue);
  };
  const auto n = p_.n.as_int();
  if (n && *n % p_.width == 0 && p_.c.n.size() == 1) {
    ir_.loop(ir_.i64(0), length, p_.width, [&](Value* s) { step(s, nullptr); });
    return;
  }
  Value* middle = b.CreateMul(b.CreateUDiv(length, ir_.i64(p_.width)), ir_.i64(p_.width));
  ir_.loop(ir_.i64(0), middle, p_.width, [&](Value* s) { step(s, nullptr); });
  ir_.loop(middle, length, p_.width, [&](Value* s) { step(s, ir_.first_lanes(b.CreateSub(length, s), p_.width)); });
}

}  // namespace ingot::cpu
