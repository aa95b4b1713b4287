// numpy's .npy format: a magic, a version, a header that is a Python dictionary literal, and the elements.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <optional>

#include "frontend/tensor_file.h"
#include "frontend/text.h"

namespace ingot {
namespace {

constexpr std::string_view kMagic = "\x93NUMPY";

// numpy's name of a dtype without its byte order.
struct DescrRow {
  std::string_view descr;
  DType type;
};
constexpr DescrRow kDescrs[] = {{"b1", DType::Bool}, {"u1", DType::U8},  {"i1", DType::I8},  {"u2", DType::U16},
                                {"i2", DType::I16},  {"u4", DType::U32}, {"i4", DType::I32}, {"u8", DType::U64},
                                {"i8", DType::I64},  {"f2", DType::F16}, {"f4", DType::F32}, {"f8", DType::F64}};

struct Header {
  std::string descr;
  bool fortran = false;
  std::vector<int64_t> dims;
  size_t data_begin = 0;
};

/// Reads the few Python literals that a header uses.
class LiteralReader {
 public:
  explicit LiteralReader(std::string_view text) : text_(text) {}

  bool accept(std::string_view token) {
    skip_space();
    if (!text_.substr(at_).starts_with(token)) return false;
    at_ += token.size();
    return true;
  }
  std::optional<std::string> string() {
    skip_space();
    const char quote = at_ < text_.size() ? text_[at_] : '\0';
    if (quote != '\'' && quote != '"') return std::nullopt;
    const size_t end = text_.find(quote, at_ + 1);
    if (end == std::string_view::npos) return std::nullopt;
    std::string result(text_.substr(at_ + 1, end - at_ - 1));
    at_ = end + 1;
    return result;
  }
  std::optional<int64_t> integer() {
    skip_space();
    size_t end = at_;
    while (end < text_.size() && text_[end] >= '0' && text_[end] <= '9') ++end;
    const auto value = parse_int(text_.substr(at_, end - at_));
    at_ = end;
    accept("L");  // Python 2 wrote long integers so
    return value;
  }
  std::optional<std::vector<int64_t>> tuple() {
    std::vector<int64_t> items;
    if (!accept("(")) return std::nullopt;
    while (!accept(")")) {
      const auto item = integer();
      if (!item) return std::nullopt;
      items.push_back(*item);
      if (accept(")")) break;
      if (!accept(",")) return std::nullopt;
    }
    return items;
  }

 private:
  void skip_space() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\t')) ++at_;
  }
  std::string_view text_;
  size_t at_ = 0;
};

Result<Header> parse_dictionary(std::string_view text) {
  LiteralReader reader(text);
  Header header;
  const Error malformed = invalid(fmt::format("the .npy header {} is malformed", quote_name(text)));
  bool has_descr = false, has_order = false, has_shape = false;
  if (!reader.accept("{")) return malformed;
  while (!reader.accept("}")) {
    const auto key = reader.string();
    if (!key || !reader.accept(":")) return malformed;
    if (*key == "descr") {
      auto descr = reader.string();
      if (!descr) return unsupported("a .npy file of records is not supported");
      header.descr = std::move(*descr), has_descr = true;
    } else if (*key == "fortran_order") {
      header.fortran = reader.accept("True");
      has_order = header.fortran || reader.accept("False");
    } else if (*key == "shape") {
      auto dims = reader.tuple();
      if (!dims) return malformed;
      header.dims = std::move(*dims), has_shape = true;
    } else {
      return malformed;
    }
    if (!reader.accept(",") && !reader.accept("}")) return malformed;
    if (has_descr && has_order && has_shape) return header;
  }
  return malformed;
}

Result<Header> parse_header(std::string_view bytes) {
  if (!bytes.starts_with(kMagic) || bytes.size() < 10) return invalid("not a .npy file");
  const auto version = static_cast<uint8_t>(bytes[6]);
  if (version < 1 || version > 3) return unsupported(fmt::format(".npy version {} is not supported", version));
  const size_t length_bytes = version == 1 ? 2 : 4, begin = 8 + length_bytes;
  if (bytes.size() < begin) return invalid("the .npy file is truncated");
  size_t length = 0;
  for (size_t i = 0; i < length_bytes; ++i) length |= size_t{static_cast<uint8_t>(bytes[8 + i])} << (8 * i);
  if (length > bytes.size() - begin) return invalid("the .npy file is truncated: its header does not end");
  Header header = INGOT_TRY(parse_dictionary(bytes.substr(begin, length)));
  header.data_begin = begin + length;
  return header;
}

Result<DType> dtype_of(const std::string& descr) {
  const Error error = unsupported(fmt::format("numpy dtype {} is not supported", quote_name(descr)));
  if (descr.size() < 3) return error;
  const char order = descr[0];
  const std::string_view rest = std::string_view(descr).substr(1);
  for (const DescrRow& row : kDescrs) {
    if (row.descr != rest) continue;
    if (order == '>' && size_of(row.type) > 1)
      return unsupported(fmt::format("numpy dtype {} is big endian", quote_name(descr)));
    if (order == '<' || order == '|' || order == '=' || order == '>') return row.type;
  }
  return error;
}

/// Copies elements that lie first index fastest into row-major order.
void copy_fortran(const char* from, Tensor& to) {
  const size_t item = size_of(to.type()), rank = to.dims().size();
  std::vector<int64_t> index(rank, 0), stride(rank, 1);
  for (size_t d = 1; d < rank; ++d) stride[d] = stride[d - 1] * to.dims()[d - 1];
  int64_t source = 0;
  for (int64_t i = 0; i < to.count(); ++i) {
    std::memcpy(to.mutable_as<char>() + static_cast<size_t>(i) * item, from + static_cast<size_t>(source) * item, item);
    for (size_t d = rank; d-- > 0;) {
      source += stride[d];
      if (++index[d] < to.dims()[d]) break;
      source -= stride[d] * index[d];
      index[d] = 0;
    }
  }
}

/// The dtype that a tensor is written as.
DType numpy_type(DType type) {
  switch (type) {
    case DType::BF16: return DType::F32;
    case DType::I4:
    case DType::I2: return DType::I8;
    case DType::U4:
    case DType::U2: return DType::U8;
    default: return is_small_float(type) ? DType::F32 : type;
  }
}

}  // namespace

Result<Tensor> parse_npy(std::string_view bytes) {
  const Header header = INGOT_TRY(parse_header(bytes));
  const DType type = INGOT_TRY(dtype_of(header.descr));
  std::vector<int64_t> nonzero = header.dims;
  std::replace(nonzero.begin(), nonzero.end(), int64_t{0}, int64_t{1});
  INGOT_TRY(checked_count(nonzero, size_of(type)));  // a later 0 must not hide an overflow
  const auto needed = static_cast<size_t>(INGOT_TRY(checked_count(header.dims, size_of(type)))) * size_of(type);
  const std::string_view data = bytes.substr(header.data_begin);
  if (data.size() < needed)
    return invalid(fmt::format("the .npy file is truncated: {} needs {} bytes, but {} are there",
                               describe(type, header.dims), needed, data.size()));
  if (data.size() > needed)
    return invalid(fmt::format("the .npy file has {} bytes after its data", data.size() - needed));
  Tensor tensor(type, header.dims);
  if (header.fortran && header.dims.size() > 1) copy_fortran(data.data(), tensor);
  else if (needed > 0) std::memcpy(tensor.mutable_data(), data.data(), needed);
  return tensor;
}

Result<std::string> format_npy(const Tensor& tensor) {
  const DType type = numpy_type(tensor.type());
  const auto* row =
      std::find_if(std::begin(kDescrs), std::end(kDescrs), [type](const DescrRow& r) { return r.type == type; });
  if (row == std::end(kDescrs)) return unsupported(fmt::format("numpy has no dtype for {}", name_of(type)));
  std::string shape;
  for (int64_t d : tensor.dims()) shape += fmt::format("{},", d) + (tensor.dims().size() > 1 ? " " : "");
  std::string header = fmt::format("{{'descr': '{}{}', 'fortran_order': False, 'shape': ({}), }}",
                                   size_of(type) > 1 ? '<' : '|', row->descr, shape);
  constexpr size_t kFixed = 10, kAlignment = 64;
  header.append(kAlignment - (kFixed + header.size() + 1) % kAlignment, ' ');
  header += '\n';
  if (header.size() > UINT16_MAX) return unsupported("the shape is too long for a .npy file");
  std::string bytes(kMagic);
  bytes += '\1';
  bytes += '\0';
  bytes += static_cast<char>(header.size() & 255);
  bytes += static_cast<char>(header.size() >> 8);
  bytes += header;
  if (type == tensor.type()) return bytes.append(tensor.as<char>(), tensor.bytes());
  Tensor wide(type, tensor.dims());
  for (int64_t i = 0; i < tensor.count(); ++i)
    is_float(type) ? wide.set_float(i, tensor.float_at(i)) : wide.set_int(i, tensor.int_at(i));
  return bytes.append(wide.as<char>(), wide.bytes());
}

}  // namespace ingot
