// Shared memory by 32-bit address (bytes in the shared window), and checked accesses to global memory.
#pragma once
#include "prelude/types.cuh"

/// Names the block's dynamic shared memory; the launch says how much there is.
#ifdef INGOT_EMULATE
#define INGOT_DYN_SHARED(address) const u32 address = emu_shared_dyn()
#else
#define INGOT_DYN_SHARED(address)                        \
  extern __shared__ __align__(1024) u8 ingot_dynamic[];  \
  const u32 address = (u32)__cvta_generic_to_shared(ingot_dynamic)
#endif

template <class T> INGOT_DEV T lds(u32 address) {
  INGOT_PTX(return *(const T*)__cvta_shared_to_generic(address);)
  INGOT_HOST(T v; emu_ld_shared(address, &v, sizeof(T), -1); return v;)
}
template <class T> INGOT_DEV void sts(u32 address, T value) {
  INGOT_PTX(*(T*)__cvta_shared_to_generic(address) = value;)
  INGOT_HOST(emu_st_shared(address, &value, sizeof(T));)
}

/// N elements by accesses of up to 16 bytes. `address` is aligned to these.
template <int N, class T> INGOT_DEV Vec<T, N> lds_vec(u32 address) {
  constexpr int kPart = sizeof(T) * N <= 16 ? N : 16 / (int)sizeof(T);
  Vec<T, N> v;
#pragma unroll
  for (int i = 0; i < N; i += kPart) {
    const auto part = lds<Vec<T, kPart>>(address + i * (u32)sizeof(T));
#pragma unroll
    for (int j = 0; j < kPart; ++j) v[i + j] = part[j];
  }
  return v;
}
/// N elements by words. `address` is aligned to these, or to N elements where they are less.
template <int N, class T> INGOT_DEV void sts_words(u32 address, const Vec<T, N>& v) {
  constexpr int kWord = sizeof(T) >= 4 ? 1 : 4 / (int)sizeof(T), kPart = N < kWord ? N : kWord;
#pragma unroll
  for (int i = 0; i < N; i += kPart) {
    Vec<T, kPart> part;
#pragma unroll
    for (int j = 0; j < kPart; ++j) part[j] = v[i + j];
    sts(address + i * (u32)sizeof(T), part);
  }
}
/// A value of 2, 4, 8 or 16 bytes to `address` in a block of this cluster.
template <class T> INGOT_DEV void sts_cluster(u32 address, T value, u32 rank) {
  INGOT_HOST(emu_st_shared(address, &value, sizeof value, (int)rank);)
  INGOT_PTX(
    u32 at;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(at) : "r"(address), "r"(rank));
    if constexpr (sizeof(T) == 2) asm volatile("st.shared::cluster.u16 [%0], %1;" ::"r"(at), "h"(bits_as<u16>(value)) : "memory");
    else if constexpr (sizeof(T) == 4) asm volatile("st.shared::cluster.u32 [%0], %1;" ::"r"(at), "r"(bits_as<u32>(value)) : "memory");
    else if constexpr (sizeof(T) == 8) {
      const Vec<u32, 2> w = bits_as<Vec<u32, 2>>(value);
      asm volatile("st.shared::cluster.v2.u32 [%0], {%1, %2};" ::"r"(at), "r"(w[0]), "r"(w[1]) : "memory");
    } else {
      const Vec<u32, 4> w = bits_as<Vec<u32, 4>>(value);
      asm volatile("st.shared::cluster.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(at), "r"(w[0]), "r"(w[1]), "r"(w[2]), "r"(w[3])
                   : "memory");
    })
}
/// The same in each of its `Blocks` blocks.
template <int Blocks, class T> INGOT_DEV void sts_all(u32 address, T value) {
#pragma unroll
  for (int rank = 0; rank < Blocks; ++rank) sts_cluster(address, value, rank);
}
/// N elements by accesses of up to 16 bytes, to this block's shared memory or, of several, to that of each block of the cluster.
/// The same each time anew: the compiler does not keep what it has read before.
template <int N> INGOT_DEV Vec<float, N> lds_vec_again(u32 address) {
  static_assert(N == 2 || N == 4, "one access");
  INGOT_HOST(return lds_vec<N, float>(address);)
  INGOT_PTX(
    Vec<float, N> v;
    if constexpr (N == 2) asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(v[0]), "=f"(v[1]) : "r"(address));
    else asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];" : "=f"(v[0]), "=f"(v[1]), "=f"(v[2]), "=f"(v[3]) : "r"(address));
    return v;)
}
template <int Blocks = 1, int N, class T> INGOT_DEV void sts_vec(u32 address, const Vec<T, N>& v) {
  constexpr int kPart = sizeof(T) * N <= 16 ? N : 16 / (int)sizeof(T);
#pragma unroll
  for (int i = 0; i < N; i += kPart) {
    Vec<T, kPart> part;
#pragma unroll
    for (int j = 0; j < kPart; ++j) part[j] = v[i + j];
    if constexpr (Blocks > 1) sts_all<Blocks>(address + i * (u32)sizeof(T), part);
    else sts(address + i * (u32)sizeof(T), part);
  }
}

/// N elements by one access. `p` is aligned to N elements.
template <int N, class T> INGOT_DEV Vec<T, N> load_vec(const T* p) {
  INGOT_HOST(Vec<T, N> v; emu_ld_global(p, &v, sizeof v); return v;)
  INGOT_PTX(
    if constexpr (sizeof(T) * N == 16) return bits_as<Vec<T, N>>(*(const uint4*)p);
    else if constexpr (sizeof(T) * N == 8) return bits_as<Vec<T, N>>(*(const uint2*)p);
    else if constexpr (sizeof(T) * N == 4) return bits_as<Vec<T, N>>(*(const u32*)p);
    else return *(const Vec<T, N>*)p;)
}
/// The same of data that nobody writes while the kernel lives: a kernel that starts early lives while its predecessor
/// still writes. 32 bytes take two accesses.
template <int N, class T> INGOT_DEV Vec<T, N> load_vec_constant(const T* p) {
  INGOT_HOST(Vec<T, N> v; emu_ld_global(p, &v, sizeof v); return v;)
  INGOT_PTX(
    if constexpr (sizeof(T) * N == 32) {
      const Vec<uint4, 2> parts{{__ldg((const uint4*)p), __ldg((const uint4*)p + 1)}};
      return bits_as<Vec<T, N>>(parts);
    } else if constexpr (sizeof(T) * N == 16) return bits_as<Vec<T, N>>(__ldg((const uint4*)p));
    else if constexpr (sizeof(T) * N == 8) return bits_as<Vec<T, N>>(__ldg((const uint2*)p));
    else if constexpr (sizeof(T) * N == 4) return bits_as<Vec<T, N>>(__ldg((const u32*)p));
    else return *(const Vec<T, N>*)p;)
}
/// The same of what other blocks have stored meanwhile: past L1.
template <int N, class T> INGOT_DEV Vec<T, N> load_vec_l2(const T* p) {
  static_assert(sizeof(T) * N == 16, "one access");
  INGOT_HOST(return load_vec<N>(p);)
  Vec<u32, 4> w;
  INGOT_PTX(asm volatile("ld.global.cg.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(w[0]), "=r"(w[1]), "=r"(w[2]), "=r"(w[3]) : "l"(p) : "memory");)
  return bits_as<Vec<T, N>>(w);
}
/// The sum of N floats, one behind the other from p on, which is aligned to 16 bytes.
template <int N> INGOT_DEV float sum_of_run(const float* p) {
  static_assert(N % 4 == 0, "by 16 bytes");
  Vec<float, 4> sum = load_vec<4>(p);
#pragma unroll
  for (int i = 4; i < N; i += 4) {
    const Vec<float, 4> next = load_vec<4>(p + i);
#pragma unroll
    for (int j = 0; j < 4; ++j) sum[j] += next[j];
  }
  return sum[0] + sum[1] + (sum[2] + sum[3]);
}
/// N elements of weights, here and now: the assembler puts other loads of constant data behind the wait for the
/// kernel before, wherever they stand.
template <int N, class T> INGOT_DEV Vec<T, N> load_vec_early(const T* p) {
  INGOT_HOST(return load_vec_constant<N>(p);)
  INGOT_PTX(
    if constexpr (sizeof(T) * N == 2) {
      u16 w;
      asm volatile("ld.global.u16 %0, [%1];" : "=h"(w) : "l"(p) : "memory");
      return bits_as<Vec<T, N>>(w);
    } else if constexpr (sizeof(T) * N == 4) {
      u32 w;
      asm volatile("ld.global.u32 %0, [%1];" : "=r"(w) : "l"(p) : "memory");
      return bits_as<Vec<T, N>>(w);
    } else if constexpr (sizeof(T) * N == 8) {
      Vec<u32, 2> w;
      asm volatile("ld.global.v2.u32 {%0, %1}, [%2];" : "=r"(w[0]), "=r"(w[1]) : "l"(p) : "memory");
      return bits_as<Vec<T, N>>(w);
    } else if constexpr (sizeof(T) * N == 16) {
      Vec<u32, 4> w;
      asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(w[0]), "=r"(w[1]), "=r"(w[2]), "=r"(w[3]) : "l"(p) : "memory");
      return bits_as<Vec<T, N>>(w);
    } else if constexpr (sizeof(T) * N == 32) {
      const Vec<Vec<T, N / 2>, 2> halves{{load_vec_early<N / 2>(p), load_vec_early<N / 2>(p + N / 2)}};
      return bits_as<Vec<T, N>>(halves);
    } else {
      return load_vec_constant<N>(p);
    })
}
template <int N, class T> INGOT_DEV void store_vec(T* p, Vec<T, N> value) {
  INGOT_HOST(emu_st_global(p, &value, sizeof value);)
  INGOT_PTX(
    if constexpr (sizeof(T) * N == 16) *(uint4*)p = bits_as<uint4>(value);
    else if constexpr (sizeof(T) * N == 8) *(uint2*)p = bits_as<uint2>(value);
    else if constexpr (sizeof(T) * N == 4) *(u32*)p = bits_as<u32>(value);
    else *(Vec<T, N>*)p = value;)
}

/// Read-only global load of 4, 8 or 16 bytes.
template <class T> INGOT_DEV T ldg_nc(const void* p) {
  INGOT_PTX(return __ldg((const T*)p);)
  INGOT_HOST(T v; emu_ld_global(p, &v, sizeof(T)); return v;)
}
/// Brings what lies at `p` to L1. The result must reach `keep` some time later.
INGOT_DEV u32 touch(const void* p) {
  INGOT_HOST(u8 v; emu_ld_global(p, &v, 1); return v;)
  u32 word = 0;
  INGOT_PTX(asm volatile("{\n.reg .u16 byte;\nld.global.u8 byte, [%1];\ncvt.u32.u16 %0, byte;\n}" : "=r"(word) : "l"(p) : "memory");)
  return word;
}
/// The same of data that nobody writes while the kernel lives.
INGOT_DEV u32 touch_constant(const void* p) {
  INGOT_HOST(u8 v; emu_ld_global(p, &v, 1); return v;)
  u32 word = 0;
  INGOT_PTX(asm volatile("{\n.reg .u16 byte;\nld.global.nc.u8 byte, [%1];\ncvt.u32.u16 %0, byte;\n}" : "=r"(word) : "l"(p));)
  return word;
}
/// Stands for a use of the value, without which the assembler drops what computes it.
INGOT_DEV void keep(u32 value) {
  INGOT_PTX(asm volatile("{\n.reg .pred rare;\nsetp.eq.u32 rare, %0, 0x9e3779b9;\n@rare nanosleep.u32 0;\n}" ::"r"(value));)
}
/// Weights that are read once: not kept in L1.
INGOT_DEV uint4 ldg_stream(const void* p) {
  uint4 r;
  INGOT_PTX(asm volatile("ld.global.nc.L1::no_allocate.L2::256B.v4.u32 {%0,%1,%2,%3}, [%4];"
                         : "=r"(r.x), "=r"(r.y), "=r"(r.z), "=r"(r.w) : "l"(p));)
  INGOT_HOST(emu_ld_global(p, &r, 16);)
  return r;
}
template <class T> INGOT_DEV void stg(void* p, T value) {
  INGOT_PTX(*(T*)p = value;)
  INGOT_HOST(emu_st_global(p, &value, sizeof(T));)
}
/// N floats (1, 2 or 4) at `address` of a block of this cluster.
template <int N> INGOT_DEV Vec<float, N> lds_cluster(u32 address, u32 rank) {
  static_assert(N == 1 || N == 2 || N == 4, "one access moves 4, 8 or 16 bytes");
  Vec<float, N> v;
  INGOT_PTX(
    u32 at;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(at) : "r"(address), "r"(rank));
    if constexpr (N == 1) asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(v[0]) : "r"(at) : "memory");
    else if constexpr (N == 2)
      asm volatile("ld.shared::cluster.v2.f32 {%0, %1}, [%2];" : "=f"(v[0]), "=f"(v[1]) : "r"(at) : "memory");
    else
      asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];" : "=f"(v[0]), "=f"(v[1]), "=f"(v[2]),
                   "=f"(v[3]) : "r"(at) : "memory");)
  INGOT_HOST(emu_ld_shared(address, &v, sizeof v, (int)rank);)
  return v;
}
/// Any value of whole 4-byte words at `address` of a block of this cluster.
template <class T> INGOT_DEV T lds_cluster_as(u32 address, u32 rank) {
  Vec<float, sizeof(T) / 4> words;
#pragma unroll
  for (u32 i = 0; i < sizeof(T) / 4; ++i) words[i] = lds_cluster<1>(address + i * 4, rank)[0];
  return bits_as<T>(words);
}
/// The 16 bytes at `address` of another block of this cluster.
INGOT_DEV float4 lds_cluster4(u32 address, u32 rank) {
  float4 v;
  INGOT_PTX(asm volatile("{\n.reg .b32 ra;\nmapa.shared::cluster.u32 ra, %4, %5;\n"
                         "ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [ra];\n}"
                         : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w) : "r"(address), "r"(rank) : "memory");)
  INGOT_HOST(emu_ld_shared(address, &v, 16, (int)rank);)
  return v;
}
