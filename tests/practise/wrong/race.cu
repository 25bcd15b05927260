// Threads add to the result without an atomic operation.
__global__ void race(const float* in, int64_t size, volatile float* out) {
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  float sum = 0;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < size; i += step)
    sum += in[i];
  *out = *out + sum;
}

cudaError_t reduce_sum(const float* in, int64_t size, float* out, void* allocate(size_t bytes),
                       cudaStream_t stream) {
  cudaMemsetAsync(out, 0, sizeof(float), stream);
  race<<<512, 256, 0, stream>>>(in, size, out);
  return cudaGetLastError();
}
