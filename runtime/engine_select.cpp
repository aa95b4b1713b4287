// Which of an engine file's programs a device runs.
#include <fmt/format.h>

#include "runtime/cpu/cpu_device.h"
#include "runtime/cpu/cpu_features.h"
#include "runtime/engine_file.h"

namespace ingot::runtime {
namespace {

/// Why the objects of a CPU program cannot run here; empty when they can.
std::string host_problem(const Program& p, const std::string& target) {
  for (const KernelInfo& k : p.kernels)
    for (const KernelBinary& b : k.binaries)
      if (b.target == target) {
        const std::string missing = missing_cpu_features(b.code);
        return missing.empty() ? "" : "this processor lacks " + missing;
      }
  for (const auto& part : p.parts)
    if (const std::string problem = host_problem(*part, target); !problem.empty()) return problem;
  return p.kernels.empty()
             ? ""
             : "its code was left out: it is host code, and the caller did not say that it trusts the file";
}

}  // namespace

std::vector<std::string> targets_of(const Program& program) {
  std::vector<std::string> list{""};
  for (char c : program.target) {
    if (c == ',') list.emplace_back();
    else list.back() += c;
  }
  return list;
}

Result<std::shared_ptr<const Program>> program_for(const EngineFile& file, const Device& device) {
  std::shared_ptr<const Program> best;
  int best_preference = 0;
  Error error = unsupported(fmt::format("the file has no program for {}", device.name()));
  for (const auto& p : file.programs)
    for (const std::string& target : targets_of(*p)) {
      const int preference = device.preference(target);
      const std::string problem = preference == 0         ? "is for another kind of device"
                                  : is_cpu_target(target) ? host_problem(*p, target)
                                                          : "";
      if (preference == 0 || !problem.empty()) error.add(fmt::format("{}: {}", target, problem));
      else if (preference > best_preference) best = p, best_preference = preference;
    }
  for (const std::string& target : file.left_out) error.add(target + ": is for another kind of device");
  if (!best) return error;
  return best;
}

}  // namespace ingot::runtime
