// The command line's verbs. Each cli_*.cpp file holds one family; main.cpp is their table.
#pragma once

#include <CLI/CLI.hpp>
#include <map>
#include <string>
#include <vector>

#include "compiler/driver/session.h"

namespace ingot::cli {

constexpr int kBadInput = 2;

/// Parses, runs the verb, prints an Error; the exit code.
int run_command_line(int argc, char** argv);

/// What a verb returns: the exit code, or an error that main prints.
using Outcome = Result<int>;
struct Verb {
  const char* name;
  const char* what;
  /// Adds options to the subcommand; the returned function runs it.
  std::function<Outcome()> (*add)(CLI::App& app);
};

std::function<Outcome()> add_compile(CLI::App& app);
std::function<Outcome()> add_refit(CLI::App& app);
std::function<Outcome()> add_run(CLI::App& app);
std::function<Outcome()> add_bench(CLI::App& app);
std::function<Outcome()> add_inspect(CLI::App& app);
std::function<Outcome()> add_check(CLI::App& app);
std::function<Outcome()> add_opt(CLI::App& app);
std::function<Outcome()> add_test(CLI::App& app);
std::function<Outcome()> add_cache(CLI::App& app);
std::function<Outcome()> add_measure(CLI::App& app);
std::function<Outcome()> add_ops(CLI::App& app);
std::function<Outcome()> add_devices(CLI::App& app);

// ---- shared by verbs ---------------------------------------------------------------------------------------------------

/// Options that every verb which compiles takes: --shape, --skip, --dump.
struct CommonOptions {
  std::vector<std::string> shapes, skip;
  std::string dump, precision = "fp32";
  void add(CLI::App& app);
  Result<CompileOptions> to_compile() const;
};
/// Options of the verbs that tune: --tune, --tune-at, --tune-device.
struct TuneOptions {
  double seconds = -1;
  std::vector<std::string> at;
  std::string device = "cuda:0";
  void add(CLI::App& app);
  Status apply(CompileOptions& options) const;
};
/// A line for each kernel that was measured at some sizes, and a summary.
void print_tuning(const std::vector<TunedKernel>& tuned);

/// "name=file" or "file" (by position) -> tensors for the bindings; missing ones are seeded random when `fill` is set.
Result<std::vector<Tensor>> read_inputs(const std::vector<runtime::Binding>& bindings, const runtime::Program& program,
                                        const std::vector<std::string>& specs, bool fill, int64_t batch, uint64_t seed);
/// Prints "kernels 12/56" on a terminal.
void show_progress(const std::string& what, size_t done, size_t total);
std::string human_bytes(double bytes);
/// `inspect` of an .ingot file: what it holds, where it runs, and why it does not run elsewhere.
Outcome inspect_engine(const std::string& path, bool json);

}  // namespace ingot::cli
