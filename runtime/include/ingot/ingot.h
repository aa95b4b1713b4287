/* Ingot's runtime in C: load an .ingot file, run it. Nothing but the GPU's driver is needed, and not even that on a CPU.
 *
 * Errors: every function that can fail returns an ingot_status; ingot_last_error() gives the message, one line of context
 * each, of the last failure in the calling thread. Outputs of a failed call are left alone.
 *
 * Threads: devices, engines, pools and batchers may be used by any number of threads at once. A session or a pipeline
 * belongs to one thread at a time; each thread makes its own, which is cheap.
 *
 * Lifetimes: what was made from something else keeps it alive; handles may be freed in any order. Freeing null is allowed.
 *
 * ABI: handles are opaque. Structures that may grow begin with `size`, which the caller sets to sizeof (INGOT_INIT does);
 * fields are only ever added at the end. Symbols carry the version INGOT_1. */
#ifndef INGOT_INGOT_H
#define INGOT_INGOT_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define INGOT_API_VERSION 1
#define INGOT_MAX_RANK 16

typedef enum ingot_status {
  INGOT_OK = 0,
  INGOT_INVALID = 1, /* an argument, a shape or a file is not as it should be */
  INGOT_UNSUPPORTED = 2, /* not for this device, or not in this build */
  INGOT_NOT_FOUND = 3,
  INGOT_IO = 4,
  INGOT_OUT_OF_MEMORY = 5, /* of the host or the device; the message has the numbers, and everything stays usable */
  INGOT_DEVICE = 6, /* the driver or a kernel failed, or the run was cancelled */
  INGOT_INTERNAL = 7 /* a fault of Ingot */
} ingot_status;

/* Element types; the numbers never change. */
typedef enum ingot_type {
  INGOT_F32 = 1, INGOT_U8 = 2, INGOT_I8 = 3, INGOT_U16 = 4, INGOT_I16 = 5, INGOT_I32 = 6, INGOT_I64 = 7, INGOT_BOOL = 9,
  INGOT_F16 = 10, INGOT_F64 = 11, INGOT_U32 = 12, INGOT_U64 = 13, INGOT_BF16 = 16, INGOT_F8E4M3 = 17,
  INGOT_F8E4M3FNUZ = 18, INGOT_F8E5M2 = 19, INGOT_F8E5M2FNUZ = 20,
  /* a byte for each element */
  INGOT_U4 = 21, INGOT_I4 = 22, INGOT_F4E2M1 = 23, INGOT_F8E8M0 = 24, INGOT_U2 = 25, INGOT_I2 = 26
} ingot_type;

typedef struct ingot_device ingot_device;
typedef struct ingot_engine ingot_engine;
typedef struct ingot_session ingot_session;
typedef struct ingot_pipeline ingot_pipeline;
typedef struct ingot_pool ingot_pool;
typedef struct ingot_batcher ingot_batcher;
typedef struct ingot_future ingot_future;

/* A tensor in the caller's memory: contiguous, row-major. */
typedef struct ingot_tensor {
  void* data;
  uint64_t bytes; /* room at `data`; of an input, at least what dims and type need */
  int32_t type; /* ingot_type */
  int32_t rank;
  int64_t dims[INGOT_MAX_RANK];
} ingot_tensor;

/* What a model takes or gives. A dimension that may vary is -1 in dims, with its bounds in low and high. */
typedef struct ingot_binding {
  size_t size;
  const char* name; /* lives as long as the engine */
  int32_t type, rank;
  int64_t dims[INGOT_MAX_RANK], low[INGOT_MAX_RANK], high[INGOT_MAX_RANK];
} ingot_binding;

#define INGOT_INIT(type) {sizeof(type)}

uint32_t ingot_api_version(void); /* INGOT_API_VERSION of the library */
const char* ingot_version(void); /* "0.1.0" */
const char* ingot_last_error(void); /* "" when nothing failed in this thread; valid until the next call here */

/* ---- devices ---- */

/* "cpu", "cpu:4" (four threads), "cuda", "cuda:1"; "" or null is the first GPU if there is one, else the CPU. */
ingot_status ingot_device_open(const char* name, ingot_device** device);
void ingot_device_free(ingot_device* device);
/* "cuda:0 (NVIDIA H200)" */
const char* ingot_device_name(const ingot_device* device);
/* GPUs that the driver sees; 0 without a driver. */
int32_t ingot_gpu_count(void);
/* Memory that the device copies from and to without staging (page-locked, on a GPU), aligned to 256. */
ingot_status ingot_host_alloc(ingot_device* device, uint64_t bytes, void** memory);
void ingot_host_free(ingot_device* device, void* memory);

/* ---- engines ---- */

typedef struct ingot_load_options {
  size_t size;
  int32_t trust_host_code; /* load x86-64 code from the file: it runs with the caller's rights. Needed on a CPU. */
  int32_t skip_weight_check; /* do not read all weights to compare their checksum */
} ingot_load_options;

/* `options` may be null. The program of the file that suits the device is taken. */
ingot_status ingot_engine_load(const char* path, ingot_device* device, const ingot_load_options* options,
                               ingot_engine** engine);
void ingot_engine_free(ingot_engine* engine);
int32_t ingot_engine_input_count(const ingot_engine* engine);
int32_t ingot_engine_output_count(const ingot_engine* engine);
ingot_status ingot_engine_input(const ingot_engine* engine, int32_t index, ingot_binding* binding);
ingot_status ingot_engine_output(const ingot_engine* engine, int32_t index, ingot_binding* binding);
uint64_t ingot_engine_weight_bytes(const ingot_engine* engine);

/* ---- sessions ---- */

typedef struct ingot_session_options {
  size_t size;
  int32_t no_lanes; /* everything on one stream */
  int32_t no_recordings; /* no CUDA graphs of the session's own */
  int32_t max_plans; /* shapes kept; 0: 64 */
  int32_t max_recordings; /* CUDA graphs kept; 0: 32 */
  uint64_t max_arena_bytes; /* 0: no limit */
  int32_t synchronous; /* wait after each launch: a fault names its kernel */
} ingot_session_options;

typedef struct ingot_counters {
  size_t size;
  uint64_t runs, plans_made, plans_dropped, recordings_made, recordings_dropped, replays, arena_bytes, arena_growths,
      staging_bytes;
  double last_plan_us;
} ingot_counters;

/* `options` may be null. */
ingot_status ingot_session_create(ingot_engine* engine, const ingot_session_options* options, ingot_session** session);
void ingot_session_free(ingot_session* session);
/* Inputs and outputs in host memory, in the engine's order. An output whose data is null is placed in memory of the
 * session, valid until its next call; otherwise it is copied to data, and bytes must suffice. type, rank, dims and bytes
 * are filled in. */
ingot_status ingot_session_run(ingot_session* session, const ingot_tensor* inputs, int32_t input_count,
                               ingot_tensor* outputs, int32_t output_count);
/* type, rank, dims and bytes of what run would give for inputs of these types and dims; data is not looked at. */
ingot_status ingot_session_output_dims(ingot_session* session, const ingot_tensor* inputs, int32_t input_count,
                                       ingot_tensor* outputs, int32_t output_count);
/* Asynchronous, on device memory that is aligned to 16 bytes. `stream` is a CUstream or cudaStream_t (null: the session's
 * own), which may be in the course of a capture. */
ingot_status ingot_session_enqueue(ingot_session* session, const ingot_tensor* inputs, int32_t input_count,
                                   const ingot_tensor* outputs, int32_t output_count, void* stream);
ingot_status ingot_session_synchronize(ingot_session* session);
/* From another thread: the run in progress stops before its next launch and returns INGOT_DEVICE. */
void ingot_session_cancel(ingot_session* session);
/* Gives back all memory that the next run would allocate anyway. */
ingot_status ingot_session_trim(ingot_session* session);
ingot_status ingot_session_counters(const ingot_session* session, ingot_counters* counters);

/* ---- pipelines: a queue of requests whose copies overlap with compute ---- */

ingot_status ingot_pipeline_create(ingot_engine* engine, int32_t depth, ingot_pipeline** pipeline);
void ingot_pipeline_free(ingot_pipeline* pipeline);
/* `depth` requests may be in flight; inputs may be changed when it returns. */
ingot_status ingot_pipeline_submit(ingot_pipeline* pipeline, const ingot_tensor* inputs, int32_t input_count,
                                   uint64_t* request);
/* Waits. Outputs as for ingot_session_run. */
ingot_status ingot_pipeline_fetch(ingot_pipeline* pipeline, uint64_t request, ingot_tensor* outputs,
                                  int32_t output_count);

/* ---- pools and batchers: many threads, several devices ---- */

/* One model on several devices (engines loaded from one file), `sessions` each. */
ingot_status ingot_pool_create(ingot_engine* const* engines, int32_t engine_count, int32_t sessions, ingot_pool** pool);
void ingot_pool_free(ingot_pool* pool);
/* From any thread; waits while all sessions are busy. The outputs' data must be given. */
ingot_status ingot_pool_run(ingot_pool* pool, const ingot_tensor* inputs, int32_t input_count, ingot_tensor* outputs,
                            int32_t output_count);
/* Requests that replica number `replica` has finished. */
uint64_t ingot_pool_served(const ingot_pool* pool, int32_t replica);

typedef struct ingot_batcher_options {
  size_t size;
  int64_t max_batch; /* rows; 0: up to 64 */
  double max_delay_ms; /* 0: 2 ms; negative: no wait */
  int32_t max_queue; /* requests waiting; 0: 1024 */
} ingot_batcher_options;

ingot_status ingot_batcher_create(ingot_pool* pool, const ingot_batcher_options* options, ingot_batcher** batcher);
/* Finishes what waits. */
void ingot_batcher_free(ingot_batcher* batcher);
/* From any thread. The inputs are copied; their first dimension is the rows. */
ingot_status ingot_batcher_submit(ingot_batcher* batcher, const ingot_tensor* inputs, int32_t input_count,
                                  ingot_future** future);
/* Waits. Outputs whose data is null are placed in memory of the future, valid until it is freed. */
ingot_status ingot_future_wait(ingot_future* future, ingot_tensor* outputs, int32_t output_count);
void ingot_future_free(ingot_future* future);

#ifdef __cplusplus
}
#endif

#endif
