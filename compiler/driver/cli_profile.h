// A profile as a table, JSON, CSV, and a trace for chrome://tracing or Perfetto.
#pragma once

#include <nlohmann/json.hpp>

#include "compiler/support/target_traits.h"
#include "runtime/executor.h"

namespace ingot::cli {

void print_profile(const runtime::Profile& p, const TargetTraits& device);
/// One object a launch: name, summary, nodes, ms, bytes, flops, and the shares of the device's nominal memory bandwidth, of its
/// rate at the kernel's arithmetic (tensor cores or fp32), and of the roofline that both make.
nlohmann::json profile_json(const runtime::Profile& p, const TargetTraits& device);
Status write_profile_csv(const runtime::Profile& p, const TargetTraits& device, const std::string& path);
Status write_chrome_trace(const runtime::Profile& p, const std::string& path);

}  // namespace ingot::cli
