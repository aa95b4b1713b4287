// The command line: the table of verbs, and one place that turns an Error into a message and exit code 2.
#include <cstdio>

#include "compiler/driver/cli.h"

namespace {

constexpr ingot::cli::Verb kVerbs[] = {
    {"compile", "compile a model into one .ingot file", ingot::cli::add_compile},
    {"refit", "put new weights into an .ingot file, without compiling kernels", ingot::cli::add_refit},
    {"run", "run a model on inputs from files, or on seeded random ones", ingot::cli::add_run},
    {"bench", "measure latency, throughput and the time of each kernel", ingot::cli::add_bench},
    {"inspect", "show operators, kernels after fusion, memory, and why groups are apart", ingot::cli::add_inspect},
    {"check", "compare the fused program with the unfused one, at several batch sizes", ingot::cli::add_check},
    {"opt", "print the graph between passes; reads .onnx or the graph's text", ingot::cli::add_opt},
    {"test", "run folders of ONNX test data", ingot::cli::add_test},
    {"cache", "the store of compiled kernels: stats, verify, clear, explain", ingot::cli::add_cache},
    {"measure", "", ingot::cli::add_measure},  // the process in which --tune measures; not for people
    {"ops", "the table of supported operators", ingot::cli::add_ops},
    {"devices", "GPUs, driver, NVRTC, and what each can run", ingot::cli::add_devices},
};

}  // namespace

int ingot::cli::run_command_line(int argc, char** argv) {
  CLI::App app("Ingot: melts an ONNX model into a few fused kernels");
  app.require_subcommand(1);
  app.set_version_flag("--version", "ingot 0.1.0");
  std::vector<std::pair<CLI::App*, std::function<ingot::cli::Outcome()>>> verbs;
  for (const auto& v : kVerbs) {
    CLI::App* sub = app.add_subcommand(v.name, v.what);
    if (!*v.what) sub->group("");
    verbs.emplace_back(sub, v.add(*sub));
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    const int code = app.exit(e);
    return code == 0 ? 0 : ingot::cli::kBadInput;
  }
  for (auto& [sub, run] : verbs) {
    if (!sub->parsed()) continue;
    auto outcome = run();
    if (outcome) return *outcome;
    std::fprintf(stderr, "%s\n", outcome.error().to_string().c_str());
    return ingot::cli::kBadInput;
  }
  return 0;
}
