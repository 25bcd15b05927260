// Waits for a value that no thread writes.
__global__ void wait(volatile float* out) {
  *out = 0;
  while (*out == 0) {
  }
}

cudaError_t reduce_sum(const float* in, int64_t size, float* out, void* allocate(size_t bytes),
                       cudaStream_t stream) {
  wait<<<1, 1, 0, stream>>>(out);
  return cudaGetLastError();
}
