// Writes to address 0.
__global__ void crash(float* out) { *out = 1; }

cudaError_t reduce_sum(const float* in, int64_t size, float* out, void* allocate(size_t bytes),
                       cudaStream_t stream) {
  crash<<<1, 1, 0, stream>>>(nullptr);
  return cudaGetLastError();
}
