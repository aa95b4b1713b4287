/* The C API: loads an engine file and runs it on images of the digits example.
 *   run_engine digits.ingot images.npy [DEVICE]      (compile it first: ingot compile digits.onnx -o digits.ingot)
 * A CPU engine holds x86-64 code: naming the device "cpu" says here that the file is trusted. */
#include <ingot/ingot.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int failed(const char* what) {
  fprintf(stderr, "%s: %s\n", what, ingot_last_error());
  return 1;
}

/* The data of a little-endian float32 .npy file: a magic, a length, a header of text, then the elements. */
static float* read_npy(const char* path, size_t* count) {
  unsigned char head[10];
  FILE* f = fopen(path, "rb");
  float* data = NULL;
  long start, end;
  if (!f) return NULL;
  if (fread(head, 1, sizeof head, f) == sizeof head && memcmp(head, "\x93NUMPY", 6) == 0) {
    start = 10 + head[8] + 256L * head[9];
    fseek(f, 0, SEEK_END);
    end = ftell(f);
    *count = (size_t)(end - start) / sizeof(float);
    data = malloc(*count * sizeof(float));
    fseek(f, start, SEEK_SET);
    if (data && fread(data, sizeof(float), *count, f) != *count) {
      free(data);
      data = NULL;
    }
  }
  fclose(f);
  return data;
}

int main(int argc, char** argv) {
  ingot_device* device = NULL;
  ingot_engine* engine = NULL;
  ingot_session* session = NULL;
  ingot_load_options options = INGOT_INIT(ingot_load_options);
  ingot_binding input = INGOT_INIT(ingot_binding);
  ingot_tensor image, scores;
  size_t count = 0;
  int64_t row, column;
  float* pixels;

  if (argc < 3) {
    fprintf(stderr, "usage: run_engine ENGINE.ingot IMAGES.npy [DEVICE]\n");
    return 2;
  }
  if (ingot_api_version() != INGOT_API_VERSION) return fprintf(stderr, "another version of the library\n"), 1;
  pixels = read_npy(argv[2], &count);
  if (!pixels) return fprintf(stderr, "%s cannot be read\n", argv[2]), 1;
  if (ingot_device_open(argc > 3 ? argv[3] : NULL, &device)) return failed("device");
  options.trust_host_code = argc > 3 && strncmp(argv[3], "cpu", 3) == 0;
  if (ingot_engine_load(argv[1], device, &options, &engine)) return failed("load");
  if (ingot_engine_input(engine, 0, &input)) return failed("input");
  if (ingot_session_create(engine, NULL, &session)) return failed("session");

  memset(&image, 0, sizeof image);
  memset(&scores, 0, sizeof scores);
  image.data = pixels;
  image.bytes = count * sizeof(float);
  image.type = input.type;
  image.rank = input.rank; /* [N,1,8,8] */
  image.dims[0] = (int64_t)(count / 64);
  image.dims[1] = 1;
  image.dims[2] = image.dims[3] = 8;
  if (ingot_session_run(session, &image, 1, &scores, 1)) return failed("run");

  printf("%s on %s:", argv[1], ingot_device_name(device));
  for (row = 0; row < scores.dims[0]; ++row) {
    const float* s = (const float*)scores.data + row * scores.dims[1];
    int best = 0;
    for (column = 1; column < scores.dims[1]; ++column)
      if (s[column] > s[best]) best = (int)column;
    printf(" %d", best);
  }
  printf("\n");
  ingot_session_free(session);
  ingot_engine_free(engine);
  ingot_device_free(device);
  free(pixels);
  return 0;
}
