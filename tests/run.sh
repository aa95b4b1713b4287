#!/usr/bin/env bash
# The whole test run: the optimised build with every test, then the unit tests under AddressSanitizer and
# UndefinedBehaviorSanitizer. Needs no terminal, no stdin and no GPU; tests that want one are skipped and counted so.
# The last line is "N passed, N failed, N skipped"; a step that cannot be finished (a build, say) is one failure.
#   bash tests/run.sh
set -uo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1
exec </dev/null
unset CLICOLOR_FORCE
export CTEST_OUTPUT_ON_FAILURE=1
logs=build/test-logs
mkdir -p "$logs"

# A cache of the run's own, cold: what is tested is this source, and not what an earlier build left behind.
if [[ -z ${INGOT_CACHE_DIR:-} ]]; then
  export INGOT_CACHE_DIR=$PWD/build/test-cache
  rm -rf "$INGOT_CACHE_DIR"
fi

passed=0
failed=0
skipped=0

step() { printf '\n== %s (at %d s)\n' "$1" "$SECONDS"; }

finish() {
  printf '\n%d passed, %d failed, %d skipped\n' "$passed" "$failed" "$skipped"
  ((failed == 0)) || exit 1
  exit 0
}

# Ends the run if the command fails.
must() {
  "$@" && return
  echo "tests/run.sh: failed: $*" >&2
  failed=$((failed + 1))
  finish
}

# Adds a ctest log to the sums. ctest's own total leaves out disabled tests and counts skipped ones as passed; a test
# whose program is missing is among its failures, as it should be.
count() {
  local log=$1 status=$2 summary run bad skip disabled
  summary=$(grep -E '^[0-9]+% tests passed, [0-9]+ tests? failed out of [0-9]+' "$log" | tail -n 1)
  if [[ $summary =~ passed,\ ([0-9]+)\ tests?\ failed\ out\ of\ ([0-9]+) ]]; then
    bad=${BASH_REMATCH[1]}
    run=${BASH_REMATCH[2]}
  else
    echo "tests/run.sh: ctest ended without a summary, exit status $status" >&2
    failed=$((failed + 1))
    return
  fi
  skip=$(grep -c -E '^[[:space:]]+[0-9]+ - .* \(Skipped\)' "$log")
  disabled=$(grep -c -E '^[[:space:]]+[0-9]+ - .* \(Disabled\)' "$log")
  passed=$((passed + run - bad - skip))
  ((status == 0 || bad > 0)) || bad=1
  failed=$((failed + bad))
  skipped=$((skipped + skip + disabled))
}

run_ctest() {
  local preset=$1 status
  ctest --preset "$preset" --output-on-failure -j2 --output-junit "$PWD/$logs/$preset.xml" 2>&1 |
    tee "$logs/$preset.log"
  status=${PIPESTATUS[0]}
  count "$logs/$preset.log" "$status"
}

step "packages"
must bash scripts/install_packages.sh --tests

# From nothing, precompiled headers are faster than a cold ccache; a warm one is faster than anything.
precompile=ON
warm_kib=100000
cached_kib=$(ccache --print-stats 2>/dev/null | sed -n 's/^cache_size_kibibyte[[:space:]]*//p')
((${cached_kib:-0} < warm_kib)) || precompile=OFF

step "building the release preset, with tests"
must cmake --preset release -DINGOT_TESTS=ON -DINGOT_PRECOMPILE=$precompile
must cmake --build --preset release

step "testing the release preset"
run_ctest release

step "building the asan preset"
must cmake --preset asan -DINGOT_PRECOMPILE=$precompile
must cmake --build --preset asan

step "unit tests under the sanitizers"
run_ctest asan

finish
