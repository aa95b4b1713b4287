# Headers that most files read, precompiled. A third of a cold build is the standard library, fmt, Catch and CLI11, read again
# for every file; where ccache is warm it is the faster of the two, and the two do not go together. Files include what they
# use all the same: the other presets build without.
option(INGOT_PRECOMPILE "precompile common headers, without ccache: for builds from nothing, such as tests/run.sh" OFF)

set(INGOT_COMMON_HEADERS <algorithm> <array> <cmath> <functional> <map> <memory> <optional> <set> <string> <string_view>
  <unordered_map> <utility> <variant> <vector> <fmt/format.h>)

# ingot_precompile(TARGET HEADER…): headers of its own.
function(ingot_precompile target)
  if(INGOT_PRECOMPILE)
    target_precompile_headers(${target} PRIVATE ${ARGN})
  endif()
endfunction()

# ingot_reuse_precompiled(TARGET OTHER): those of another target, compiled with the same options.
function(ingot_reuse_precompiled target other)
  if(INGOT_PRECOMPILE AND NOT target STREQUAL other)
    target_precompile_headers(${target} REUSE_FROM ${other})
  endif()
endfunction()
