// A thread computes four products, also behind the end.
__global__ void four_a_thread(const float* a, const float* b, int64_t size, float* out) {
  const int64_t first = 4 * (int64_t{blockIdx.x} * blockDim.x + threadIdx.x);
  if (first >= size) return;
  for (int64_t i = first; i < first + 4; ++i) out[i] = i < size ? a[i] * b[i] : 0;
}

cudaError_t mul(const float* self, const float* other, int64_t size, float* out,
                void* allocate(size_t bytes), cudaStream_t stream) {
  if (size == 0) return cudaSuccess;
  four_a_thread<<<(size + 1023) / 1024, 256, 0, stream>>>(self, other, size, out);
  return cudaGetLastError();
}
