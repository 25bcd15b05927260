// Right, and slow: a thread needs 96 values at once and has 32 registers.
__global__ __launch_bounds__(1024, 2) void spills(const float* in, int64_t size, float* out) {
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  float sum = 0;
  for (int64_t first = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; first < size;
       first += 96 * step) {
    float values[96];
#pragma unroll
    for (int j = 0; j < 96; ++j) {
      const int64_t i = first + j * step;
      values[j] = 0;
      if (i < size) asm volatile("ld.global.f32 %0, [%1];" : "=f"(values[j]) : "l"(in + i));
    }
#pragma unroll
    for (int j = 95; j >= 0; --j) sum += values[j];
  }
  for (int apart = 16; apart > 0; apart /= 2) sum += __shfl_down_sync(0xffffffffu, sum, apart);
  if (threadIdx.x % 32 == 0) atomicAdd(out, sum);
}

cudaError_t reduce_sum(const float* in, int64_t size, float* out, void* allocate(size_t bytes),
                       cudaStream_t stream) {
  cudaMemsetAsync(out, 0, sizeof(float), stream);
  spills<<<264, 1024, 0, stream>>>(in, size, out);
  return cudaGetLastError();
}
