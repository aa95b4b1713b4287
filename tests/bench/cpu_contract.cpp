// Measures generated CPU contractions against the peak of the machine's fused multiply-adds: a matrix product, a 3x3
// convolution and smaller relatives. Prints one line each; no test.
#include <fmt/format.h>

#include <chrono>

#include "codegen/llvm/cpu_backend.h"

using namespace ingot;
using Clock = std::chrono::steady_clock;

namespace {

struct Case {
  std::string name;
  Kernel kernel;
  std::vector<int64_t> sizes;  // elements of each buffer
  double flops = 0;
};

Axis axis(const char* name, int64_t extent) { return {Expr::index(name, Expr(extent)), Expr(extent)}; }

Buffer buffer(const char* name, int64_t size, bool output) { return {name, DType::F32, {Expr(size)}, output, false}; }

/// y[m,n] = relu(sum_k a[m,k]*b[k,n] + bias[m])
Case product(int64_t m, int64_t n, int64_t k, bool b_transposed) {
  Case c;
  c.name = fmt::format("product {}x{}x{}{}", m, n, k, b_transposed ? " b transposed" : "");
  Contract x;
  x.m = {axis("m", m)};
  x.n = {axis("n", n)};
  x.k = {axis("k", k)};
  const Expr vm = x.m[0].var, vn = x.n[0].var, vk = x.k[0].var;
  x.a = Expr::load(0, DType::F32, vm * Expr(k) + vk);
  x.b = Expr::load(1, DType::F32, b_transposed ? vn * Expr(k) + vk : vk * Expr(n) + vn);
  x.acc = Expr::local("acc", DType::F32);
  x.epilogue = {
      Stmt{Store{3, vm * Expr(n) + vn, max(x.acc + Expr::load(2, DType::F32, vm), Expr::real(DType::F32, 0))}}};
  c.kernel.buffers = {buffer("a", m * k, false), buffer("b", k * n, false), buffer("bias", m, false),
                      buffer("y", m * n, true)};
  c.kernel.body = {Stmt{x}};
  c.sizes = {m * k, k * n, m, m * n};
  c.flops = 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
  return c;
}

/// 'Same' convolution, NCHW, square filter.
Case convolution(int64_t channels, int64_t filters, int64_t size, int64_t window) {
  Case c;
  c.name = fmt::format("convolution {}->{} {}x{} window {}", channels, filters, size, size, window);
  Contract x;
  x.m = {axis("oc", filters)};
  x.n = {axis("oh", size), axis("ow", size)};
  x.k = {axis("ic", channels), axis("kh", window), axis("kw", window)};
  const Expr oc = x.m[0].var, oh = x.n[0].var, ow = x.n[1].var, ic = x.k[0].var, kh = x.k[1].var, kw = x.k[2].var;
  const Expr h = oh + kh - Expr(window / 2), w = ow + kw - Expr(window / 2), s = Expr(size);
  const Expr inside = logical_and(logical_and(le(Expr(0), h), lt(h, s)), logical_and(le(Expr(0), w), lt(w, s)));
  x.a = Expr::load(0, DType::F32, ((oc * Expr(channels) + ic) * Expr(window) + kh) * Expr(window) + kw);
  const Expr read = Expr::load(1, DType::F32, (ic * s + h) * s + w);
  x.b = window > 1 ? select(inside, read, Expr::real(DType::F32, 0)) : read;
  x.acc = Expr::local("acc", DType::F32);
  x.epilogue = {
      Stmt{Store{3, (oc * s + oh) * s + ow, max(x.acc + Expr::load(2, DType::F32, oc), Expr::real(DType::F32, 0))}}};
  c.sizes = {filters * channels * window * window, channels * size * size, filters, filters * size * size};
  c.kernel.buffers = {buffer("w", c.sizes[0], false), buffer("x", c.sizes[1], false), buffer("bias", c.sizes[2], false),
                      buffer("y", c.sizes[3], true)};
  c.kernel.body = {Stmt{x}};
  c.flops = 2.0 * static_cast<double>(c.sizes[0]) * static_cast<double>(size * size);
  return c;
}

/// Depthwise convolution as a window.
Case depthwise(int64_t channels, int64_t size, int64_t window) {
  Case c;
  c.name = fmt::format("depthwise {} {}x{} window {}", channels, size, size, window);
  c.kernel.domain = {axis("c", channels), axis("oh", size), axis("ow", size)};
  const Axis akh = axis("kh", window), akw = axis("kw", window);
  const Expr ch = c.kernel.domain[0].var, oh = c.kernel.domain[1].var, ow = c.kernel.domain[2].var;
  const Expr h = oh + akh.var - Expr(window / 2), w = ow + akw.var - Expr(window / 2), s = Expr(size);
  const Expr inside = logical_and(logical_and(le(Expr(0), h), lt(h, s)), logical_and(le(Expr(0), w), lt(w, s)));
  Reduce r;
  r.result = Expr::local("sum", DType::F32);
  r.init = Expr::real(DType::F32, 0);
  r.axes = {akh, akw};
  r.value = select(inside, Expr::load(1, DType::F32, (ch * s + h) * s + w), Expr::real(DType::F32, 0)) *
            Expr::load(0, DType::F32, (ch * Expr(window) + akh.var) * Expr(window) + akw.var);
  c.kernel.body = {Stmt{r}, Stmt{Store{2, (ch * s + oh) * s + ow, max(r.result, Expr::real(DType::F32, 0))}}};
  c.sizes = {channels * window * window, channels * size * size, channels * size * size};
  c.kernel.buffers = {buffer("w", c.sizes[0], false), buffer("x", c.sizes[1], false), buffer("y", c.sizes[2], true)};
  c.flops = 2.0 * static_cast<double>(c.sizes[2] * window * window);
  return c;
}

double seconds_of(const std::function<void()>& f) {
  f();
  double best = 1e9;
  for (int i = 0; i < 20; ++i) {
    const auto start = Clock::now();
    f();
    best = std::min(best, std::chrono::duration<double>(Clock::now() - start).count());
  }
  return best;
}

void measure(const Case& c, const TargetTraits& traits, const runtime::CpuLoader& loader) {
  const auto start = Clock::now();
  Kernel kernel = c.kernel;
  kernel.name = "bench";
  auto emitted = emit_cpu(kernel, traits);
  if (!emitted) {
    fmt::print("{}: {}\n", c.name, emitted.error().to_string());
    return;
  }
  const double compile_ms = std::chrono::duration<double, std::milli>(Clock::now() - start).count();
  runtime::KernelInfo info;
  info.name = kernel.name;
  info.scratch_bytes = emitted->launch.scratch_bytes;
  info.binaries = {{"cpu", emitted->object}};
  std::vector<Tensor> tensors;
  std::vector<void*> pointers;
  for (int64_t size : c.sizes) {
    tensors.emplace_back(DType::F32, std::vector<int64_t>{size});
    for (int64_t i = 0; i < size; ++i) tensors.back().mutable_as<float>()[i] = static_cast<float>(i % 17) * 0.1f - 0.8f;
  }
  for (Tensor& t : tensors) pointers.push_back(t.mutable_data());
  const int64_t tasks = *emitted->launch.tasks.as_int();
  std::string figures;
  for (int threads : {1, traits.parallel_units}) {
    runtime::CpuDevice device(loader, threads);
    auto loaded = device.load(info);
    if (!loaded) {
      fmt::print("{}: {}\n", c.name, loaded.error().to_string());
      return;
    }
    const double s = seconds_of([&] { (void)device.launch(**loaded, {pointers, {}, {tasks, 1, 1}, {}}, nullptr); });
    figures += fmt::format(" | {} threads {:8.1f} us {:6.1f} GFLOP/s", threads, s * 1e6, c.flops / s / 1e9);
  }
  fmt::print("{:42}{} | {} tasks | {:.0f} ms to compile | {}\n", c.name, figures, tasks, compile_ms,
             emitted->launch.summary);
}

}  // namespace

int main(int argc, char** argv) {
  auto traits = cpu_traits(argc > 1 ? argv[1] : "cpu");
  const runtime::CpuLoader loader = runtime::object_loader();
  if (!traits) return 1;
  for (const Case& c : {product(256, 3136, 256, false), product(64, 3136, 64, false), product(512, 512, 512, false),
                        product(128, 768, 768, false), product(128, 768, 768, true), product(512, 49, 512, false),
                        product(1, 1000, 2048, false), product(1, 1000, 2048, true), product(8, 1000, 2048, true),
                        convolution(64, 64, 56, 3), convolution(128, 128, 28, 3), convolution(256, 256, 14, 3),
                        convolution(512, 512, 7, 3), convolution(64, 256, 56, 1), convolution(3, 64, 112, 7),
                        depthwise(96, 112, 3), depthwise(144, 56, 3), depthwise(384, 14, 3), depthwise(960, 7, 3)})
    measure(c, *traits, loader);
}
