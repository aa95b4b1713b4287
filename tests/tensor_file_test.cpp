// Tensors in files: numpy arrays in both orders, archives of them, and ONNX test data.
#include "frontend/tensor_file.h"

#include <zlib.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <cstring>
#include <filesystem>

using namespace ingot;

namespace {

template <class T>
T good(Result<T> result) {
  if (!result) FAIL(result.error().to_string());
  return std::move(result).value();
}

}  // namespace

TEST_CASE("npy round trip, and both orders", "[frontend]") {
  Tensor t(DType::F16, {2, 3});
  for (int i = 0; i < 6; ++i) t.set_float(i, i - 2.5);
  const std::string bytes = good(format_npy(t));
  CHECK(bytes.size() % 64 == 12);  // the data begin on a multiple of 64
  const Tensor back = good(parse_npy(bytes));
  CHECK(back.type() == DType::F16);
  CHECK(back.dims() == t.dims());
  for (int i = 0; i < 6; ++i) CHECK(back.float_at(i) == t.float_at(i));

  std::string header = "{'descr': '<i4', 'fortran_order': True, 'shape': (2, 3), }\n";
  std::string fortran = std::string("\x93NUMPY\1\0", 8) + static_cast<char>(header.size()) + '\0' + header;
  for (int32_t v : {1, 4, 2, 5, 3, 6}) fortran.append(reinterpret_cast<const char*>(&v), 4);
  const Tensor c_order = good(parse_npy(fortran));
  for (int i = 0; i < 6; ++i) CHECK(c_order.int_at(i) == i + 1);

  const Tensor scalar = good(parse_npy(good(format_npy(Tensor::scalar(DType::BF16, 1.5)))));
  CHECK(scalar.type() == DType::F32);
  CHECK(scalar.dims().empty());
  CHECK(scalar.float_at(0) == 1.5);
}

TEST_CASE("npz archives, stored and deflated", "[frontend]") {
  Tensor t(DType::F32, {300});
  for (int i = 0; i < 300; ++i) t.set_float(i, i % 7);
  const std::string npy = good(format_npy(t));
  std::string deflated(npy.size() + 64, '\0');
  z_stream stream{};
  REQUIRE(deflateInit2(&stream, 9, Z_DEFLATED, -MAX_WBITS, 9, Z_DEFAULT_STRATEGY) == Z_OK);
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(npy.data()));
  stream.avail_in = static_cast<uInt>(npy.size());
  stream.next_out = reinterpret_cast<Bytef*>(deflated.data());
  stream.avail_out = static_cast<uInt>(deflated.size());
  REQUIRE(deflate(&stream, Z_FINISH) == Z_STREAM_END);
  deflated.resize(stream.total_out);
  deflateEnd(&stream);

  const auto crc =
      static_cast<uint32_t>(crc32(0, reinterpret_cast<const Bytef*>(npy.data()), static_cast<uInt>(npy.size())));
  std::string archive, directory;
  auto put = [](std::string& out, uint64_t value, int bytes) {
    for (int i = 0; i < bytes; ++i) out += static_cast<char>(value >> (8 * i));
  };
  auto add = [&](const std::string& name, int method, const std::string& data) {
    const size_t offset = archive.size();
    auto common = [&](std::string& out) {  // version, flags, method, time, date, crc, sizes, name length, extra length
      put(out, 20, 2), put(out, 0, 2), put(out, static_cast<uint64_t>(method), 2), put(out, 0, 4), put(out, crc, 4);
      put(out, data.size(), 4), put(out, npy.size(), 4), put(out, name.size(), 2), put(out, 0, 2);
    };
    archive += "PK\x03\x04";
    common(archive);
    archive += name + data;
    directory += "PK\x01\x02";
    put(directory, 20, 2);
    common(directory);
    put(directory, 0, 2), put(directory, 0, 2), put(directory, 0, 2), put(directory, 0, 4), put(directory, offset, 4);
    directory += name;
  };
  add("first.npy", 0, npy);
  add("second.npy", 8, deflated);
  std::string end = "PK\x05\x06";
  put(end, 0, 4), put(end, 2, 2), put(end, 2, 2), put(end, directory.size(), 4), put(end, archive.size(), 4),
      put(end, 0, 2);
  const std::string whole = archive + directory + end;
  const auto tensors = good(parse_npz(whole));
  REQUIRE(tensors.size() == 2);
  CHECK(tensors[0].name == "first");
  CHECK(tensors[1].name == "second");
  for (const NamedTensor& n : tensors) CHECK(std::memcmp(n.tensor.data(), t.data(), t.bytes()) == 0);
  std::string flipped = whole;
  flipped[200] = static_cast<char>(flipped[200] ^ 1);
  CHECK(!parse_npz(flipped));
  for (size_t n = 0; n < whole.size(); n += 7) CHECK(!parse_npz(whole.substr(0, n)));
}

TEST_CASE("tensor protos round trip through files", "[frontend]") {
  std::string pattern = (std::filesystem::temp_directory_path() / "ingot-test-XXXXXX").string();
  const std::filesystem::path folder = ::mkdtemp(pattern.data());
  for (DType type : {DType::F32, DType::I64, DType::Bool, DType::BF16, DType::F8E5M2, DType::I4, DType::U4, DType::I2,
                     DType::U2, DType::F4E2M1}) {
    Tensor t(type, {3});
    for (int i = 0; i < 3; ++i) is_float(type) ? t.set_float(i, i) : t.set_int(i, i % 2);
    REQUIRE(write_tensor_proto((folder / "t.pb").string(), t, "name").ok());
    const NamedTensor back = good(read_tensor((folder / "t.pb").string()));
    CHECK(back.name == "name");
    CHECK(back.tensor.type() == type);
    CHECK(std::memcmp(back.tensor.data(), t.data(), t.bytes()) == 0);
  }
  std::filesystem::remove_all(folder);
}
