/* What NVIDIA's profilers offer, counting instead of drawing. */
int pushed, popped, depth, deepest;
int nvtxRangePushA(const char* name) {
  if (name && *name) ++pushed;
  if (++depth > deepest) deepest = depth;
  return depth - 1;
}
int nvtxRangePop(void) {
  ++popped;
  return --depth;
}
