// A semicolon is missing.
cudaError_t reduce_sum(const float* in, int64_t size, float* out, void* allocate(size_t bytes),
                       cudaStream_t stream) {
  return cudaMemsetAsync(out, 0, 4, stream)
}
