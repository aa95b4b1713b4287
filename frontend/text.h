// Names and numbers that come out of a file, made fit for messages and identifiers. Used all over the frontend.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace ingot {

/// "name", with control characters escaped and a long middle left out: a model's names are not to be trusted.
std::string quote_name(std::string_view name);
/// A decimal integer and nothing else; nullopt when it is no such thing or does not fit.
std::optional<int64_t> parse_int(std::string_view text);
/// Letters, digits and '_' of the text, not starting with a digit, and no word that C++ or the IR's text form reserves.
std::string identifier(std::string_view text);
/// As identifier, and different from every name that kernels give their indices and values.
std::string dimension_name(std::string_view text);

}  // namespace ingot
