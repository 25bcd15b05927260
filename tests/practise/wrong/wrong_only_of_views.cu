// Has blocks for whole tiles alone.
__global__ void transpose(const float* in, int64_t rows, int64_t columns, float* out) {
  const int64_t row = blockIdx.y * 16 + threadIdx.y, column = blockIdx.x * 16 + threadIdx.x;
  out[column * rows + row] = in[row * columns + column];
}

cudaError_t transpose2d(const float* in, int64_t rows, int64_t columns, float* out,
                        void* allocate(size_t bytes), cudaStream_t stream) {
  const dim3 blocks(columns / 16, rows / 16);
  if (blocks.x == 0 || blocks.y == 0) return cudaSuccess;
  transpose<<<blocks, dim3(16, 16), 0, stream>>>(in, rows, columns, out);
  return cudaGetLastError();
}
