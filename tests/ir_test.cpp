// Graph edits keep their invariants; text round-trips; the builder evaluates shape arithmetic.
#include <catch2/catch.hpp>

#include "compiler/ir/builder.h"
#include "compiler/ir/text.h"
#include "compiler/ir/verify.h"
#include "compiler/ops/registry.h"
#include "compiler/ops/rows.h"

using namespace ingot;

namespace {
Graph two_relus(ValueId* middle = nullptr) {
  Graph g;
  const ValueId x = g.add_input({DType::F32, {Expr::symbol("N", 1), 4}}, "x");
  GraphBuilder b(g);
  const ValueId y = b.add(op("Relu"), {x}).value(), z = b.add(op("Exp"), {y}).value();
  g.outputs = {z};
  g.output_names = {"z"};
  if (middle) *middle = y;
  return g;
}
}  // namespace

TEST_CASE("replace_all_uses moves uses and outputs, and erasing frees producers") {
  ValueId y;
  Graph g = two_relus(&y);
  g.replace_all_uses(y, g.inputs[0]);
  CHECK(g.value(y).users.empty());
  CHECK(g.value(g.inputs[0]).users.size() == 2);
  CHECK(g.erase_if_dead(g.value(y).producer));
  CHECK(g.live_nodes() == 1);
  g.compact();
  CHECK(verify(g, Stage::Imported).ok());
}

TEST_CASE("text round-trips") {
  const Graph g = two_relus();
  const std::string text = print_graph(g);
  auto again = parse_graph(text, find_op);
  REQUIRE(again.ok());
  CHECK(print_graph(*again) == text);
}

TEST_CASE("parse errors have a place") {
  auto bad = parse_graph("graph (%0 \"x\": f32[4]) {\n  %1 = Frobnicate(%0): f32[4]\n  return %1 \"y\"\n}", find_op);
  REQUIRE_FALSE(bad.ok());
  CHECK(bad.error().message == "2:18: unknown operator Frobnicate");
}

TEST_CASE("shape arithmetic has contents, not kernels") {
  Graph g;
  const Expr n = Expr::symbol("N", 1);
  const ValueId x = g.add_input({DType::F32, {n, 3, 8}}, "x");
  GraphBuilder b(g);
  OnnxNode node;
  node.op = "Shape";
  node.opset = 17;
  ImportContext c(node, b, {x});
  const ValueId shape = find_import(op("Shape"), 17)->apply(c).value()[0];
  const ValueId twice = build_scalar(b, "Mul", shape, 2).value();
  REQUIRE(b.content(twice));
  CHECK(to_string((*b.content(twice))[0]) == "N*2");
  CHECK(to_string((*b.content(twice))[2]) == "16");
}

TEST_CASE("every row is sound") {
  for (const OpDef* d : all_ops()) {
    INFO(d->name);
    CHECK(d->min_inputs <= d->max_inputs);
    for (size_t i = 1; i < d->imports.size(); ++i) CHECK(d->imports[i - 1].since < d->imports[i].since);
    const bool internal_only = d->imports.empty();
    const bool is_control = d->name == "If" || d->name == "Loop";  // cut out before lowering
    if (internal_only && !is_control) CHECK_FALSE(d->lowers_as<NoLowering>());
    if (!d->lowers_as<NoLowering>() && !d->lowers_as<Fused>()) CHECK(d->infer != nullptr);
  }
}
