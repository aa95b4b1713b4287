/* What a kernel's object has: code, constants, a table with addresses, writable data, a call to libm. */
#include <stdint.h>

float expf(float);

static const float kTable[4] = {1.5f, 2.5f, 3.5f, 4.5f};
static const float* const kRows[2] = {kTable, kTable + 2};
static int64_t calls;
__attribute__((used)) static const char note[] = "ingot needs sse2,";

static __attribute__((noinline)) float work(float x, int64_t i) { return expf(x) * kRows[i & 1][(i >> 1) & 1]; }

void sample(void* const* buffers, const int64_t* dims, int64_t first, int64_t last, void* scratch) {
  const float* x = buffers[0];
  float* y = buffers[1];
  (void)scratch;
  ++calls;
  for (int64_t i = first; i < last && i < dims[0]; ++i) y[i] = work(x[i], i) + (float)calls;
}
