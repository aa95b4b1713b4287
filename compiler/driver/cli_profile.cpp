#include "compiler/driver/cli_profile.h"

#include <fmt/format.h>

#include <cstdio>
#include <fstream>

#include "compiler/driver/cli.h"

namespace ingot::cli {
namespace {

/// Shares of 1: what the launch reached of the device's bandwidth and of its rate at this kind of arithmetic, and the larger of
/// both, which is its share of the roofline.
struct Shares {
  double memory, compute;
  double roofline() const { return std::max(memory, compute); }
};
Shares shares_of(const runtime::KernelTime& k, const TargetTraits& device) {
  const double seconds = std::max(k.ms, 1e-9) / 1000;
  const bool tensor = k.tensor_cost > 0 && device.tensor_gflops > 0;
  const double gflops = tensor ? device.tensor_gflops / k.tensor_cost : device.f32_gflops;
  return {static_cast<double>(k.bytes) / seconds / (device.memory_gbps * 1e9), static_cast<double>(k.flops) / seconds / (gflops * 1e9)};
}

std::string joined(const std::vector<std::string>& list, const char* between) {
  std::string text;
  for (const std::string& s : list) text += (text.empty() ? "" : between) + s;
  return text;
}

Status write_text(const std::string& path, const std::string& text) {
  std::ofstream out(path);
  out << text;
  out.close();
  if (!out) return make_error(ErrorKind::Io, path + " cannot be written");
  return {};
}

std::string quoted(const std::string& s) {
  std::string out = "\"";
  for (char c : s) out += c == '"' ? "\"\"" : std::string(1, c);
  return out + "\"";
}

}  // namespace

void print_profile(const runtime::Profile& p, const TargetTraits& device) {
  fmt::print("  {:>9} {:>6} {:>10} {:>9} {:>9} {:>7} {:>6} {:>6}  kernel\n", "ms", "share", "bytes", "GB/s", "GFLOP/s", "memory%", "maths%", "roof%");
  for (const auto& k : p.kernels) {
    const Shares s = shares_of(k, device);
    fmt::print("  {:9.4f} {:5.1f}% {:>10} {:9.1f} {:9.1f} {:6.1f}% {:5.1f}% {:5.1f}%  {}\n", k.ms, 100 * k.ms / std::max(p.total_ms, 1e-9),
               human_bytes(static_cast<double>(k.bytes)), static_cast<double>(k.bytes) / std::max(k.ms, 1e-9) / 1e6,
               static_cast<double>(k.flops) / std::max(k.ms, 1e-9) / 1e6, 100 * s.memory, 100 * s.compute, 100 * s.roofline(), k.name);
  }
  fmt::print("  {:9.4f} ms in {} kernels\n", p.total_ms, p.kernels.size());
}

nlohmann::json profile_json(const runtime::Profile& p, const TargetTraits& device) {
  nlohmann::json list = nlohmann::json::array();
  for (const auto& k : p.kernels) {
    const Shares s = shares_of(k, device);
    list.push_back({{"name", k.name}, {"summary", k.summary}, {"nodes", k.nodes}, {"ms", k.ms}, {"stream", k.lane}, {"bytes", k.bytes},
                    {"flops", k.flops}, {"share_of_memory_roof", s.memory}, {"share_of_arithmetic_roof", s.compute}, {"share_of_roofline", s.roofline()}});
  }
  return list;
}

Status write_profile_csv(const runtime::Profile& p, const TargetTraits& device, const std::string& path) {
  std::string text = "kernel,summary,ms,stream,bytes,flops,share_of_memory_roof,share_of_arithmetic_roof,share_of_roofline,nodes\n";
  for (const auto& k : p.kernels) {
    const Shares s = shares_of(k, device);
    text += fmt::format("{},{},{:.6f},{},{},{},{:.4f},{:.4f},{:.4f},{}\n", quoted(k.name), quoted(k.summary), k.ms, k.lane, k.bytes, k.flops,
                        s.memory, s.compute, s.roofline(), quoted(joined(k.nodes, " ")));
  }
  return write_text(path, text);
}

Status write_chrome_trace(const runtime::Profile& p, const std::string& path) {
  nlohmann::json events = nlohmann::json::array();
  for (const auto& k : p.kernels)
    events.push_back({{"name", k.summary.empty() ? k.name : k.summary}, {"cat", "kernel"}, {"ph", "X"}, {"pid", 0}, {"tid", k.lane},
                      {"ts", k.start_ms * 1000}, {"dur", k.ms * 1000},
                      {"args", {{"kernel", k.name}, {"nodes", joined(k.nodes, " ")}, {"bytes", k.bytes}, {"flops", k.flops}}}});
  return write_text(path, nlohmann::json{{"traceEvents", events}, {"displayTimeUnit", "ms"}}.dump());
}

}  // namespace ingot::cli
