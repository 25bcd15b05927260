// Launches on the default stream instead of the given one.
__global__ void product(const float* a, const float* b, int64_t size, float* out) {
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < size) out[i] = a[i] * b[i];
}

cudaError_t mul(const float* self, const float* other, int64_t size, float* out,
                void* allocate(size_t bytes), cudaStream_t stream) {
  if (size == 0) return cudaSuccess;
  product<<<(size + 255) / 256, 256>>>(self, other, size, out);
  return cudaGetLastError();
}
