// What a kernel sees when it is compiled for the host: CUDA's names and the emulator's entry points. Included by the
// prelude (types.cuh), which defines u8 to u64 first. No standard header, so that a kernel compiles in a fraction of a
// second.
#pragma once
#define __global__
#define __device__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __cluster_dims__(...)
#define __grid_constant__
#define __align__(n) alignas(n)

struct uint3 {
  unsigned x, y, z;
};
struct alignas(8) float2 {
  float x, y;
};
struct alignas(16) float4 {
  float x, y, z, w;
};
struct alignas(8) uint2 {
  unsigned x, y;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
inline float2 make_float2(float a, float b) { return {a, b}; }
inline float4 make_float4(float a, float b, float c, float d) { return {a, b, c, d}; }
inline uint2 make_uint2(unsigned a, unsigned b) { return {a, b}; }
inline uint4 make_uint4(unsigned a, unsigned b, unsigned c, unsigned d) { return {a, b, c, d}; }
inline int min(int a, int b) { return a < b ? a : b; }
inline int max(int a, int b) { return a > b ? a : b; }
inline float __uint_as_float(unsigned v) { return __builtin_bit_cast(float, v); }
inline unsigned __float_as_uint(float v) { return __builtin_bit_cast(unsigned, v); }

extern "C" {
extern uint3 threadIdx, blockIdx, blockDim, gridDim;  // set at every switch of fibers
float expf(float) noexcept;
double exp(double) noexcept;
float logf(float) noexcept;
double log(double) noexcept;
float sqrtf(float) noexcept;
double sqrt(double) noexcept;
float tanhf(float) noexcept;
double tanh(double) noexcept;
float erff(float) noexcept;
double erf(double) noexcept;
float sinf(float) noexcept;
double sin(double) noexcept;
float cosf(float) noexcept;
double cos(double) noexcept;
float tanf(float) noexcept;
double tan(double) noexcept;
float asinf(float) noexcept;
double asin(double) noexcept;
float acosf(float) noexcept;
double acos(double) noexcept;
float atanf(float) noexcept;
double atan(double) noexcept;
float sinhf(float) noexcept;
double sinh(double) noexcept;
float coshf(float) noexcept;
double cosh(double) noexcept;
float asinhf(float) noexcept;
double asinh(double) noexcept;
float acoshf(float) noexcept;
double acosh(double) noexcept;
float atanhf(float) noexcept;
double atanh(double) noexcept;
float log1pf(float) noexcept;
double log1p(double) noexcept;
float floorf(float) noexcept;
double floor(double) noexcept;
float ceilf(float) noexcept;
double ceil(double) noexcept;
float rintf(float) noexcept;
double rint(double) noexcept;
float fabsf(float) noexcept;
double fabs(double) noexcept;
float exp2f(float) noexcept;
double exp2(double) noexcept;
float fmaxf(float, float) noexcept;
double fmax(double, double) noexcept;
float fminf(float, float) noexcept;
double fmin(double, double) noexcept;
float powf(float, float) noexcept;
double pow(double, double) noexcept;
float fmodf(float, float) noexcept;
double fmod(double, double) noexcept;
float fmaf(float, float, float) noexcept;
double fma(double, double, double) noexcept;

u32 emu_shared_dyn();
u32 emu_shared_static(int id, u32 bytes);
void emu_ld_shared(u32 a, void* out, int bytes, int cta);  // cta -1: the own one
void emu_st_shared(u32 a, const void* v, int bytes, int cta = -1);
void emu_ld_global(const void* p, void* out, int bytes);
void emu_st_global(void* p, const void* v, int bytes);
void emu_fence_gpu();
int emu_count_up(int* counter);
void emu_bar(int id, int threads, int wait);  // threads 0: the whole CTA
void emu_warp_sync();
void emu_cluster_arrive();
void emu_cluster_arrive_relaxed();
void emu_cluster_wait();
u32 emu_cluster_rank();
u64 emu_shfl_bits(u64 v, int kind, int arg);  // kind 0 lane, 1 xor, 2 down
u32 emu_ballot(int p);
u32 emu_elect();
void emu_mbar_init(u32 bar, u32 count);
void emu_mbar_arrive(u32 bar, u32 tx, int cta);
u32 emu_mbar_try_wait(u32 bar, u32 parity);
void emu_mbar_wait(u32 bar, u32 parity);
void emu_fence_mbar_init();
void emu_fence_proxy_async();
void emu_cp_async(u32 dst, const void* src, u32 bytes);
void emu_cp_async_some(u32 dst, const void* src, int bytes, int inside);
void emu_cp_async_commit();
void emu_cp_async_wait(int n);
void emu_tma_load(u32 dst, const void* map, u32 bar, int rank, const int* coord, const u16* offset, int offsets,
                  int ctas);
void emu_tma_store(const void* map, u32 src, int rank, const int* coord);
void emu_bulk_load(u32 dst, const void* src, u32 bytes, u32 bar);
void emu_bulk_store(void* dst, u32 src, u32 bytes);
void emu_bulk_commit();
void emu_bulk_wait(int n, int read);
void emu_wgmma(float* d, int n, int type, u64 da, const u32* a, u64 db, int ta, int tb, int scale_d);
void emu_wgmma_fence();
void emu_wgmma_commit();
void emu_wgmma_wait(int n);
void emu_setmaxnreg(int n);
void emu_pdl_wait();
void emu_ldmatrix4(u32 a, u32* r, int trans);
void emu_stmatrix4(u32 a, const u32* r);
void emu_mma(int type, void* d, const u32* a, const u32* b);
u16 emu_to_f16(float);
u16 emu_to_bf16(float);
float emu_from_f16(u16);
}
inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
inline double rsqrt(double x) { return 1.0 / sqrt(x); }

template <class T>
inline T emu_shfl(T v, int kind, int arg) {
  u64 u = 0;
  __builtin_memcpy(&u, &v, sizeof v);
  u = emu_shfl_bits(u, kind, arg);
  __builtin_memcpy(&v, &u, sizeof v);
  return v;
}
// calls f(*(A0*)p[0], *(A1*)p[1], ...)
template <class T>
struct EmuBare {
  typedef T type;
};
template <class T>
struct EmuBare<const T> {
  typedef T type;
};
template <int... I>
struct EmuSeq {};
template <int N, int... I>
struct EmuMakeSeq : EmuMakeSeq<N - 1, N - 1, I...> {};
template <int... I>
struct EmuMakeSeq<0, I...> {
  typedef EmuSeq<I...> type;
};
template <class... A, int... I>
inline void emu_call_seq(void (*f)(A...), void** p, EmuSeq<I...>) {
  f(*(typename EmuBare<A>::type*)p[I]...);
}
template <class... A>
inline void emu_call(void (*f)(A...), void** p) {
  emu_call_seq(f, p, typename EmuMakeSeq<sizeof...(A)>::type());
}
