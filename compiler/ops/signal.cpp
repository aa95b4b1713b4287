// Fourier transforms as products with a constant matrix, windows, and the mel filter bank.
#include <fmt/format.h>

#include <cmath>

#include "compiler/expr/simplify.h"
#include "compiler/ops/compose.h"

namespace ingot {
namespace {

using Types = std::vector<TensorType>;

constexpr int64_t kMostMatrix = int64_t{1} << 24;  // elements of the transform's matrix

// ---- DFT -----------------------------------------------------------------------------------------------------------------
struct Transform {
  int64_t given = 0, length = 0;     // elements along the axis, and of the transform
  int64_t in_parts = 1, out_parts = 2;  // 1: real, 2: real and imaginary
  bool inverse = false, onesided = false;
  int64_t bins() const { return onesided && !inverse ? length / 2 + 1 : length; }
};
/// Rows (element, part), columns (bin, part).
Tensor transform_matrix(const Transform& t, DType type) {
  const int64_t bins = t.bins(), columns = bins * t.out_parts;
  Tensor m(type, {t.given * t.in_parts, columns});
  for (int64_t i = 0; i < t.given; ++i) {
    // A one-sided spectrum stands for its mirror image, too.
    const bool edge = i == 0 || 2 * i == t.length;
    const double factor = !t.inverse ? 1.0 : (t.onesided && !edge ? 2.0 : 1.0) / static_cast<double>(t.length);
    for (int64_t k = 0; k < bins; ++k) {
      const double turn = static_cast<double>((i * k) % t.length) / static_cast<double>(t.length);
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
/// Transforms axis `axis` of x, whose last axis holds the parts.
ValueId transform(Compose& g, ValueId x, size_t axis, Transform t) {
  if (g.failed()) return x;
  const DType type = g.dtype(x);
  x = g.widen(x);
  const size_t rank = g.rank(x);
  if (t.given > t.length && !(t.inverse && t.onesided)) x = g.slice(x, axis, 0, t.length), t.given = t.length;
  if (t.inverse && t.onesided && t.given > t.length / 2 + 1) x = g.slice(x, axis, 0, t.length / 2 + 1), t.given = t.length / 2 + 1;
  if (t.given * t.in_parts * t.bins() * t.out_parts > kMostMatrix) return g.fail(unsupported(fmt::format("a transform of length {}", t.length)));
  std::vector<int64_t> there, back(rank);
  for (size_t d = 0; d + 1 < rank; ++d)
    if (d != axis) there.push_back(static_cast<int64_t>(d));
  there.push_back(static_cast<int64_t>(axis));
  there.push_back(static_cast<int64_t>(rank) - 1);
  for (size_t d = 0; d < rank; ++d) back[static_cast<size_t>(there[d])] = static_cast<int64_t>(d);
  x = g.transpose(x, there);
  Shape lead(g.shape(x).begin(), g.shape(x).end() - 2), out = lead;
  lead.push_back(t.given * t.in_parts);
  out.push_back(t.bins());
  out.push_back(t.out_parts);
  x = g.reshape(x, lead);
  if (lead.size() == 1) x = g.reshape(x, {1, lead[0]});
  const ValueId y = g.matmul(x, g.builder().constant(transform_matrix(t, g.dtype(x))));
  return g.cast(g.transpose(g.reshape(y, out), back), type);
}
Result<Transform> read_transform(ImportContext& c, size_t axis) {
  Transform t;
  const Shape& s = c.type(0).shape;
  const auto given = s[axis].as_int(), parts = s.back().as_int();
  if (!given) return unsupported("a transform along a dynamic axis");
  if (!parts || *parts < 1 || *parts > 2) return invalid("the last axis must hold one or two parts");
  t.given = *given, t.in_parts = *parts;
  t.inverse = INGOT_TRY(c.node.int_or("inverse", 0)) != 0;
  t.onesided = INGOT_TRY(c.node.int_or("onesided", 0)) != 0;
  t.length = t.inverse && t.onesided ? 2 * (t.given - 1) : t.given;
  if (t.inverse && t.onesided) t.out_parts = 1;
  return t;
}
/// Opset 17 has the axis as an attribute, 20 as an input.
Result<Values> import_dft(ImportContext& c) {
  int64_t axis = c.node.opset < 20 ? INGOT_TRY(c.node.int_or("axis", 1)) : -2;
  if (c.has(2)) axis = INGOT_TRY(c.ints(2)).at(0);
  if (c.rank(0) < 2) return invalid("needs rank 2 or more");
  const auto at = static_cast<size_t>(INGOT_TRY(wrap_axis(axis, c.rank(0))));
  if (at + 1 == c.rank(0)) return invalid("the last axis holds the parts");
  Transform t = INGOT_TRY(read_transform(c, at));
  if (c.has(1)) t.length = INGOT_TRY(c.ints(1)).at(0);
  if (t.length < 1) return invalid("dft_length must be positive");
  Compose g(c.builder);
  return g.result({transform(g, c.in(0), at, t)});
}
/// signal [B, L, parts], frame_step, window, frame_length.
Result<Values> import_stft(ImportContext& c) {
  const Shape s = c.type(0).shape;
  if (s.size() != 3 || !s[1].as_int()) return unsupported("needs a signal [batch, length, parts] of known length");
  const int64_t step = INGOT_TRY(c.ints(1)).at(0);
  int64_t length = *s[1].as_int();
  if (c.has(2) && c.type(2).shape[0].as_int()) length = *c.type(2).shape[0].as_int();
  if (c.has(3)) length = INGOT_TRY(c.ints(3)).at(0);
  if (step < 1 || length < 1 || length > *s[1].as_int()) return invalid("frame_step or frame_length do not fit the signal");
  const int64_t frames = (*s[1].as_int() - length) / step + 1;
  Tensor index(DType::I64, {frames, length});
  for (int64_t f = 0; f < frames; ++f)
    for (int64_t i = 0; i < length; ++i) index.set_int(f * length + i, f * step + i);
  Compose g(c.builder);
  ValueId x = g.gather(c.in(0), c.builder.constant(index), 1);
  if (c.has(2)) x = g.mul(x, g.reshape(c.in(2), {length, 1}));
  Transform t;
  t.given = t.length = length;
  t.in_parts = s[2].as_int().value_or(1);
  t.onesided = INGOT_TRY(c.node.int_or("onesided", 1)) != 0;
  return g.result({transform(g, x, 2, t)});
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
Result<double> number_at(ImportContext& c, size_t i) {
  const Expr e = INGOT_TRY(c.content(i)).at(0);
  if (!e.is_const()) return unsupported(fmt::format("input {} depends on a dynamic dimension", i));
  return e.float_value();
}
/// Triangles between the edges left, centre and right, for every bin.
Result<Values> import_mel(ImportContext& c) {
  const auto bins = static_cast<int64_t>(INGOT_TRY(number_at(c, 0))), length = static_cast<int64_t>(INGOT_TRY(number_at(c, 1)));
  const double rate = INGOT_TRY(number_at(c, 2)), low = INGOT_TRY(number_at(c, 3)), high = INGOT_TRY(number_at(c, 4));
  const DType type = INGOT_TRY(dtype_from_onnx(INGOT_TRY(c.node.int_or("output_datatype", 1))));
  if (bins < 1 || length < 1 || rate <= 0 || bins * length > kMostMatrix) return invalid("the sizes do not make a filter bank");
  const int64_t spectrum = length / 2 + 1;
  const double mel_low = 2595 * std::log1p(low / 700) / std::log(10.0), mel_high = 2595 * std::log1p(high / 700) / std::log(10.0);
  std::vector<int64_t> edge;
  for (int64_t i = 0; i < bins + 2; ++i) {
    const double mel = static_cast<double>(i) * (mel_high - mel_low) / static_cast<double>(bins + 2) + mel_low;
    const double hertz = 700 * std::expm1(mel / 2595 * std::log(10.0));
    edge.push_back(static_cast<int64_t>(std::floor(static_cast<double>(length + 1) * hertz / rate)));
    if (edge.back() < 0 || edge.back() >= spectrum) return invalid("an edge is outside the spectrum");
  }
  Tensor m(type, {spectrum, bins});
  for (int64_t i = 0; i < bins; ++i) {
    const auto at = static_cast<size_t>(i);
    const int64_t left = edge[at], centre = edge[at + 1], right = edge[at + 2];
    if (left == centre) m.set_float(centre * bins + i, 1);
    else
      for (int64_t j = left; j <= centre; ++j) m.set_float(j * bins + i, static_cast<double>(j - left) / static_cast<double>(centre - left));
    for (int64_t j = centre; j < right; ++j) m.set_float(j * bins + i, static_cast<double>(right - j) / static_cast<double>(right - centre));
  }
  return Values{c.builder.constant(m)};
}

const OpDef kSignal[] = {
    import_row("DFT", "a product with a constant matrix", kRules<import_dft, 17, 20>, 1, 3),
    import_row("STFT", "Gather, window, DFT", kRules<import_stft, 17>, 2, 4),
    lowered_row<WindowAttrs>("Window", "internal", {}, infer_window, Element{window_element}, 0, 0),
    import_row("HannWindow", "", kRules<import_window, 17>, 1, 1),
    import_row("HammingWindow", "", kRules<import_window, 17>, 1, 1),
    import_row("BlackmanWindow", "", kRules<import_window, 17>, 1, 1),
    import_row("MelWeightMatrix", "computed on import", kRules<import_mel, 17>, 5, 5),
};

}  // namespace

std::span<const OpDef> signal_ops() { return kSignal; }

}  // namespace ingot
