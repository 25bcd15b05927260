// Right, and slow: neighbouring threads read values that are 1024 apart.
__global__ void rows_of_threads(const float* in, int64_t size, float* out) {
  const int64_t first = 1024 * (int64_t{blockIdx.x} * blockDim.x + threadIdx.x);
  float sum = 0;
  for (int64_t i = first; i < min(first + 1024, size); ++i) sum += in[i];
  if (first < size) atomicAdd(out, sum);
}

cudaError_t reduce_sum(const float* in, int64_t size, float* out, void* allocate(size_t bytes),
                       cudaStream_t stream) {
  cudaMemsetAsync(out, 0, sizeof(float), stream);
  rows_of_threads<<<size / (256 * 1024) + 1, 256, 0, stream>>>(in, size, out);
  return cudaGetLastError();
}
