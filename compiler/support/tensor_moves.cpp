#include "compiler/support/tensor_moves.h"

#include <algorithm>

namespace ingot {
namespace {

constexpr int64_t kBlock = 32;  // of a transposition: a cache line's neighbours are used while it is there

/// to[i * to_step + j] = from[i * from_step + j * stride] for all i and j.
template <class T>
void copy_plane(T* to, const T* from, int64_t rows, int64_t columns, int64_t to_step, int64_t from_step, int64_t stride) {
  for (int64_t i0 = 0; i0 < rows; i0 += kBlock)
    for (int64_t j0 = 0; j0 < columns; j0 += kBlock)
      for (int64_t i = i0; i < std::min(i0 + kBlock, rows); ++i)
        for (int64_t j = j0; j < std::min(j0 + kBlock, columns); ++j) to[i * to_step + j] = from[i * from_step + j * stride];
}

template <class T>
void transpose(const Tensor& from, const std::vector<int64_t>& perm, Tensor& to) {
  const size_t rank = perm.size();
  std::vector<int64_t> strides(rank, 1), step(rank);
  for (size_t d = rank - 1; d > 0; --d) strides[d - 1] = strides[d] * from.dims()[d];
  for (size_t d = 0; d < rank; ++d) step[d] = strides[static_cast<size_t>(perm[d])];
  // A plane: the last dimension of the result, and the one that is contiguous in what it comes from.
  const size_t last = rank - 1;
  size_t across = last;
  for (size_t d = 0; d < last; ++d)
    if (across == last || step[d] < step[across]) across = d;
  const std::vector<int64_t>& dims = to.dims();
  std::vector<int64_t> place(rank, 1), at(rank, 0);
  for (size_t d = last; d > 0; --d) place[d - 1] = place[d] * dims[d];
  for (bool more = true; more;) {
    int64_t out = 0, in = 0;
    for (size_t d = 0; d < rank; ++d) out += at[d] * place[d], in += at[d] * step[d];
    const bool plane = across != last;
    copy_plane(to.mutable_as<T>() + out, from.as<T>() + in, plane ? dims[across] : 1, dims[last], plane ? place[across] : 0,
               plane ? step[across] : 0, step[last]);
    more = false;
    for (size_t d = last; d-- > 0 && !more;) {
      if (d == across) continue;
      more = ++at[d] < dims[d];
      if (!more) at[d] = 0;
    }
  }
}

}  // namespace

Tensor transposed(const Tensor& from, const std::vector<int64_t>& perm) {
  std::vector<int64_t> dims;
  for (int64_t d : perm) dims.push_back(from.dims()[static_cast<size_t>(d)]);
  Tensor to(from.type(), dims);
  if (from.count() == 0) return to;
  if (perm.empty()) return from;
  switch (size_of(from.type())) {
    case 1: transpose<uint8_t>(from, perm, to); break;
    case 2: transpose<uint16_t>(from, perm, to); break;
    case 4: transpose<uint32_t>(from, perm, to); break;
    case 8: transpose<uint64_t>(from, perm, to); break;
    default: INGOT_CHECK(false, "transposed: elements of an odd size");
  }
  return to;
}

Tensor concatenated(std::span<const TensorPtr> parts, size_t axis) {
  std::vector<int64_t> dims = parts[0]->dims();
  dims[axis] = 0;
  for (const TensorPtr& p : parts) dims[axis] += p->dims()[axis];
  Tensor to(parts[0]->type(), dims);
  int64_t outer = 1, inner = static_cast<int64_t>(size_of(to.type()));
  for (size_t d = 0; d < axis; ++d) outer *= dims[d];
  for (size_t d = axis + 1; d < dims.size(); ++d) inner *= dims[d];
  char* out = static_cast<char*>(to.mutable_data());
  for (int64_t i = 0; i < outer; ++i)
    for (const TensorPtr& p : parts) {
      const auto bytes = static_cast<size_t>(p->dims()[axis] * inner);
      std::memcpy(out, static_cast<const char*>(p->data()) + static_cast<size_t>(i) * bytes, bytes);
      out += bytes;
    }
  return to;
}

}  // namespace ingot
