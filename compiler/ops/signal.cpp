// Fourier transforms as products with a matrix, windows, and the mel filter bank. What is constant of them folds.
#include <fmt/format.h>

#include <cmath>

#include "compiler/expr/simplify.h"
#include "compiler/ops/compose.h"
#include "compiler/ops/open_axes.h"

namespace ingot {
namespace {

using Types = std::vector<TensorType>;

constexpr int64_t kMostMatrix = int64_t{1} << 24;  // elements of the transform's matrix

// ---- DFT -----------------------------------------------------------------------------------------------------------------
struct Transform {
  Expr given, length;                // elements along the axis, and of the transform
  int64_t in_parts = 1, out_parts = 2;  // 1: real, 2: real and imaginary
  bool inverse = false, onesided = false;
  DType type = DType::F32;           // of the matrix
  INGOT_FIELDS(given, length, in_parts, out_parts, inverse, onesided, type)
  Expr half() const { return floor_div(length, 2) + 1; }
  Expr bins() const { return onesided && !inverse ? half() : length; }
};
/// The matrix of a transform whose sizes are numbers: rows (element, part), columns (bin, part).
Tensor constant_matrix(const Transform& t) {
  const int64_t given = *t.given.as_int(), length = *t.length.as_int(), bins = *t.bins().as_int(), columns = bins * t.out_parts;
  Tensor m(t.type, {given * t.in_parts, columns});
  for (int64_t i = 0; i < given; ++i) {
    // A one-sided spectrum stands for its mirror image, too.
    const bool edge = i == 0 || 2 * i == length;
    const double factor = !t.inverse ? 1.0 : (t.onesided && !edge ? 2.0 : 1.0) / static_cast<double>(length);
    for (int64_t k = 0; k < bins; ++k) {
      const double turn = static_cast<double>((i * k) % length) / static_cast<double>(length);
      const double angle = (t.inverse ? 2 : -2) * M_PI * turn, c = factor * std::cos(angle), s = factor * std::sin(angle);
      const int64_t row = i * t.in_parts, column = k * t.out_parts;
      m.set_float(row * columns + column, c);
      if (t.out_parts == 2) m.set_float(row * columns + column + 1, s);
      if (t.in_parts == 2) m.set_float((row + 1) * columns + column, -s);
      if (t.in_parts == 2 && t.out_parts == 2) m.set_float((row + 1) * columns + column + 1, c);
    }
  }
  return m;
}
/// TransformMatrix, the same where only a call knows the sizes.
Result<Types> infer_matrix(const OpView& v) {
  const auto& t = v.attrs.as<Transform>();
  return Types{{t.type, {simplify(t.given * t.in_parts), simplify(t.bins() * t.out_parts)}}};
}
Expr matrix_element(const OpView& v, const Index& out) {
  const auto& t = v.attrs.as<Transform>();
  const auto real = [](double x) { return Expr::real(DType::F64, x); };
  const auto wide = [](const Expr& e) { return cast(DType::F64, e); };
  const Expr i = simplify(floor_div(out[0], t.in_parts)), k = simplify(floor_div(out[1], t.out_parts));
  const Expr imaginary = simplify(floor_mod(out[0], t.in_parts)), to_imaginary = simplify(floor_mod(out[1], t.out_parts));
  const Expr angle = real((t.inverse ? 2 : -2) * M_PI) * (wide(floor_mod(i * k, t.length)) / wide(t.length));
  const Expr c = call(Fn::Cos, angle), s = call(Fn::Sin, angle);
  // (a + ib)(c + is): a gives c and s, b gives -s and c.
  const Expr value = select(eq(imaginary, to_imaginary), c, select(eq(imaginary, 0), s, real(0) - s));
  if (!t.inverse) return cast(t.type, value);
  const Expr edge = logical_or(eq(i, 0), eq(i * 2, t.length));
  const Expr times = t.onesided ? select(edge, real(1), real(2)) : real(1);
  return cast(t.type, value * times / wide(t.length));
}
/// Transforms the last axis but one of x; the last holds the parts.
ValueId transform(Compose& g, ValueId x, Transform t) {
  if (g.failed()) return x;
  const DType type = g.dtype(x);
  x = g.widen(x);
  const size_t axis = g.rank(x) - 2;
  const Expr used = g.builder().named(min(t.given, t.inverse && t.onesided ? t.half() : t.length));
  if (!proves_equal(used, t.given)) x = g.slice(x, axis, 0, used), t.given = used;
  const Expr elements = simplify(t.given * t.in_parts * t.bins() * t.out_parts);
  if (elements.as_int() && *elements.as_int() > kMostMatrix) return g.fail(unsupported(fmt::format("a transform of length {}", to_string(t.length))));
  Shape lead(g.shape(x).begin(), g.shape(x).end() - 2), out = lead;
  lead.push_back(t.given * t.in_parts);
  out.push_back(t.bins());
  out.push_back(t.out_parts);
  x = g.reshape(x, lead);
  if (lead.size() == 1) x = g.reshape(x, {1, lead[0]});
  t.type = g.failed() ? type : g.dtype(x);
  const bool fixed = t.given.is_const() && t.length.is_const();
  const ValueId matrix = fixed ? g.builder().constant(constant_matrix(t)) : g.node("TransformMatrix", t, {});
  return g.cast(g.reshape(g.matmul(x, matrix), out), type);
}
Result<Transform> read_transform(ImportContext& c) {
  Transform t;
  const auto parts = c.type(0).shape.back().as_int();
  if (!parts || *parts < 1 || *parts > 2) return invalid("the last axis must hold one or two parts");
  t.in_parts = *parts;
  t.inverse = INGOT_TRY(c.node.int_or("inverse", 0)) != 0;
  t.onesided = INGOT_TRY(c.node.int_or("onesided", 0)) != 0;
  if (t.inverse && t.onesided) t.out_parts = 1;
  return t;
}
/// A size that an input holds.
Result<Expr> size_at(ImportContext& c, size_t i) {
  const Expr size = c.builder.dimension(cast(DType::I64, INGOT_TRY(c.content(i)).at(0)));
  if (size.as_int() && *size.as_int() < 1) return invalid(fmt::format("input {} must be positive", i));
  return size;
}
/// The transform of x along its last axis but one, of the length that input 1 may give.
Result<ValueId> transform_last(ImportContext& c, Compose& g, ValueId x, Transform t) {
  if (g.failed()) return x;
  t.given = g.shape(x)[g.rank(x) - 2];
  t.length = c.has(1) ? INGOT_TRY(size_at(c, 1)) : simplify(t.inverse && t.onesided ? (t.given - 1) * 2 : t.given);
  return transform(g, x, t);
}
/// The axis is an input whose value only a call knows.
Result<Values> open_transform(ImportContext& c, OpenAxes axes, const Transform& t) {
  axes.flags.pop_back();
  Expr hits = 0;
  for (const Expr& f : axes.flags) hits = hits + f;
  c.builder.require(eq(hits, 1), fmt::format("DFT \"{}\": the last axis holds the parts", c.node.name));
  Compose g(c.builder);
  const ValueId x = g.take(axes_to_end(c.builder, c.in(0), axes)), y = INGOT_TRY(transform_last(c, g, x, t));
  if (g.failed()) return g.result({});
  Shape shape = c.type(0).shape;
  for (size_t d = 0; d + 1 < shape.size(); ++d)
    shape[d] = c.builder.named(select(eq(axes.flags[d], 1), g.shape(y)[shape.size() - 2], shape[d]));
  shape.back() = t.out_parts;
  return one(axes_from_end(c.builder, y, axes, shape));
}
/// Opset 17 has the axis as an attribute, 20 as an input.
Result<Values> import_dft(ImportContext& c) {
  const size_t rank = c.rank(0);
  if (rank < 2) return invalid("needs rank 2 or more");
  const Transform t = INGOT_TRY(read_transform(c));
  if (const auto open = INGOT_TRY(open_axes(c, 2, rank))) return open_transform(c, *open, t);
  int64_t axis = c.node.opset < 20 ? INGOT_TRY(c.node.int_or("axis", 1)) : -2;
  if (c.has(2)) axis = INGOT_TRY(c.ints(2)).at(0);
  axis = INGOT_TRY(wrap_axis(axis, rank));
  const auto last = static_cast<int64_t>(rank) - 2;
  if (axis > last) return invalid("the last axis holds the parts");
  std::vector<int64_t> there, back(rank);
  for (int64_t d = 0; d <= last; ++d)
    if (d != axis) there.push_back(d);
  there.push_back(axis);
  there.push_back(last + 1);
  for (size_t d = 0; d < rank; ++d) back[static_cast<size_t>(there[d])] = static_cast<int64_t>(d);
  Compose g(c.builder);
  const ValueId y = INGOT_TRY(transform_last(c, g, g.transpose(c.in(0), there), t));
  return g.result({g.transpose(y, back)});
}
/// signal [B, L, parts], frame_step, window, frame_length.
Result<Values> import_stft(ImportContext& c) {
  const Shape s = c.type(0).shape;
  if (s.size() != 3) return unsupported("needs a signal [batch, length, parts]");
  const Expr step = INGOT_TRY(size_at(c, 1));
  Transform t;
  t.length = c.has(3) ? INGOT_TRY(size_at(c, 3)) : c.has(2) ? c.type(2).shape[0] : s[1];
  t.given = t.length;
  if (proves_less(s[1], t.length)) return invalid("frame_length does not fit the signal");
  const Expr frames = c.builder.named(floor_div(s[1] - t.length, step) + 1);
  c.builder.require(logical_and(lt(0, step), lt(0, frames)), fmt::format("STFT \"{}\": frame_step or frame_length do not fit the signal", c.node.name));
  Compose g(c.builder);
  const Shape grid{frames, t.length};
  const ValueId first = g.mul(g.position(grid, 0), g.take(build_values(c.builder, DType::I64, {}, {step})));
  ValueId x = g.gather(c.in(0), g.add(first, g.position(grid, 1)), 1);
  if (c.has(2)) x = g.mul(x, g.reshape(c.in(2), {t.length, 1}));
  t.in_parts = s[2].as_int().value_or(1);
  t.onesided = INGOT_TRY(c.node.int_or("onesided", 1)) != 0;
  return g.result({transform(g, x, t)});
}

// ---- windows -------------------------------------------------------------------------------------------------------------
struct WindowAttrs {
  DType type = DType::F32;
  Expr size = 0;
  bool periodic = true;
  double a = 0.5, b = 0.5, c = 0;  // a - b*cos(x) + c*cos(2x)
  INGOT_FIELDS(type, size, periodic, a, b, c)
};
Result<Types> infer_window(const OpView& v) {
  const auto& w = v.attrs.as<WindowAttrs>();
  return Types{{w.type, {w.size}}};
}
Expr window_element(const OpView& v, const Index& out) {
  const auto& w = v.attrs.as<WindowAttrs>();
  const DType type = w.type == DType::F64 ? DType::F64 : DType::F32;
  const auto number = [&](double x) { return Expr::real(type, x); };
  const Expr length = cast(type, w.periodic ? w.size : max(w.size - 1, 1));
  const Expr x = cast(type, out[0]) * number(2 * M_PI) / length;
  return cast(compute_type(w.type), number(w.a) - number(w.b) * call(Fn::Cos, x) + number(w.c) * call(Fn::Cos, number(2) * x));
}
Result<Values> import_window(ImportContext& c) {
  WindowAttrs w;
  w.type = INGOT_TRY(dtype_from_onnx(INGOT_TRY(c.node.int_or("output_datatype", 1))));
  w.size = cast(DType::I64, INGOT_TRY(c.content(0)).at(0));
  w.periodic = INGOT_TRY(c.node.int_or("periodic", 1)) != 0;
  if (c.node.op == "HammingWindow") w.a = 25.0 / 46.0, w.b = 1 - w.a;
  if (c.node.op == "BlackmanWindow") w.a = 0.42, w.b = 0.5, w.c = 0.08;
  return one(c.builder.add(op("Window"), w, {}));
}

// ---- mel filter bank -----------------------------------------------------------------------------------------------------
/// Triangles over the spectrum, one a column. The scalars are f64.
struct MelAttrs {
  DType type = DType::F32;
  Expr bins, length, rate, low, high;
  INGOT_FIELDS(type, bins, length, rate, low, high)
};
Result<Types> infer_mel(const OpView& v) {
  const auto& a = v.attrs.as<MelAttrs>();
  return Types{{a.type, {simplify(floor_div(a.length, 2) + 1), a.bins}}};
}
Expr f64(double x) { return Expr::real(DType::F64, x); }
Expr mel_of(const Expr& hertz) { return f64(2595 / std::log(10.0)) * call(Fn::Log1p, hertz / f64(700)); }
/// The bin of the spectrum at which triangle i begins; it has its top at the next edge, and ends at the one after.
Expr mel_edge(const MelAttrs& a, const Expr& i) {
  const Expr low = mel_of(a.low), step = (mel_of(a.high) - low) / cast(DType::F64, a.bins + 2);
  const Expr hertz = f64(700) * (call(Fn::Exp, (cast(DType::F64, i) * step + low) * f64(std::log(10.0) / 2595)) - f64(1));
  return cast(DType::I64, call(Fn::Floor, cast(DType::F64, a.length + 1) * hertz / a.rate));
}
Expr mel_element(const OpView& v, const Index& out) {
  const auto& a = v.attrs.as<MelAttrs>();
  const DType type = compute_type(a.type);
  const Expr j = out[0], left = mel_edge(a, out[1]), centre = mel_edge(a, out[1] + 1), right = mel_edge(a, out[1] + 2);
  const auto share = [&](const Expr& part, const Expr& whole) { return cast(type, cast(DType::F64, part) / cast(DType::F64, whole)); };
  const Expr none = Expr::number(a.type, 0);
  const Expr falls = select(logical_and(le(centre, j), lt(j, right)), share(right - j, right - centre), none);
  const Expr rises = select(eq(left, centre), Expr::number(a.type, 1), share(j - left, centre - left));
  return select(logical_and(le(left, j), logical_or(lt(j, centre), logical_and(eq(j, centre), eq(right, centre)))), rises, falls);
}
Result<Values> import_mel(ImportContext& c) {
  MelAttrs a;
  a.type = INGOT_TRY(dtype_from_onnx(INGOT_TRY(c.node.int_or("output_datatype", 1))));
  a.bins = INGOT_TRY(size_at(c, 0)), a.length = INGOT_TRY(size_at(c, 1));
  Expr* numbers[] = {&a.rate, &a.low, &a.high};
  for (size_t i = 0; i < 3; ++i) *numbers[i] = cast(DType::F64, INGOT_TRY(c.content(2 + i)).at(0));
  c.builder.require(logical_and(lt(f64(0), a.rate), logical_and(le(f64(0), a.low), le(a.high * f64(2), a.rate))),
                    fmt::format("MelWeightMatrix \"{}\": an edge is outside the spectrum", c.node.name));
  return one(c.builder.add(op("MelWeights"), a, {}));
}

const OpDef kSignal[] = {
    lowered_row<Transform>("TransformMatrix", "of a DFT; internal", {}, infer_matrix, Element{matrix_element}, 0, 0),
    import_row("DFT", "a product with a matrix", kRules<import_dft, 17, 20>, 1, 3),
    import_row("STFT", "Gather, window, DFT", kRules<import_stft, 17>, 2, 4),
    lowered_row<WindowAttrs>("Window", "internal", {}, infer_window, Element{window_element}, 0, 0),
    import_row("HannWindow", "", kRules<import_window, 17>, 1, 1),
    import_row("HammingWindow", "", kRules<import_window, 17>, 1, 1),
    import_row("BlackmanWindow", "", kRules<import_window, 17>, 1, 1),
    lowered_row<MelAttrs>("MelWeights", "internal", {}, infer_mel, Element{mel_element}, 0, 0),
    import_row("MelWeightMatrix", "", kRules<import_mel, 17>, 5, 5),
};

}  // namespace

std::span<const OpDef> signal_ops() { return kSignal; }

}  // namespace ingot
