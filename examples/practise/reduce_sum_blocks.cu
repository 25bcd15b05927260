// A first kernel for the ladder of reduce_sum: each block adds 256 values in shared memory. Its
// first thread adds the sum of the block to the result.
__global__ void add_block(const float* in, int64_t size, float* out) {
  __shared__ float values[256];
  const unsigned thread = threadIdx.x;
  const int64_t i = int64_t{blockIdx.x} * 256 + thread;
  values[thread] = i < size ? in[i] : 0;
  for (unsigned apart = 128; apart > 0; apart /= 2) {
    __syncthreads();
    if (thread < apart) values[thread] += values[thread + apart];
  }
  if (thread == 0) atomicAdd(out, values[0]);
}

cudaError_t reduce_sum(const float* in, int64_t size, float* out, void* allocate(size_t bytes),
                       cudaStream_t stream) {
  cudaMemsetAsync(out, 0, sizeof(float), stream);
  const auto blocks = static_cast<unsigned>((size + 255) / 256);
  if (blocks > 0) add_block<<<blocks, 256, 0, stream>>>(in, size, out);
  return cudaGetLastError();
}
