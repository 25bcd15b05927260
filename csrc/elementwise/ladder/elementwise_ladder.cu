// The steps of elementwise_ladder.h. docs/ladder shows the code of a step between two equal marks
// in brackets.
#include <cuda_fp16.h>

#include "common/index.h"
#include "elementwise/ladder/elementwise_ladder.h"

namespace gpuopt::elementwise {
namespace {

constexpr int kThreads = 256;

// [one_a_thread]
__global__ void one_a_thread(const float* self, const float* other, float* out, int64_t size) {
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < size) out[i] = self[i] * other[i];
}
// [one_a_thread]

// [grid_stride]
__global__ void grid_stride(const float* self, const float* other, float* out, int64_t size) {
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < size; i += step) {
    out[i] = self[i] * other[i];
  }
}
// [grid_stride]

// [vectors]
__global__ void vectors(const float* self, const float* other, float* out, int64_t size) {
  const int64_t step = int64_t{gridDim.x} * blockDim.x, vecs = size / 4;
  int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < size % 4) out[vecs * 4 + i] = self[vecs * 4 + i] * other[vecs * 4 + i];
  for (; i < vecs; i += step) {
    const float4 a = reinterpret_cast<const float4*>(self)[i];
    const float4 b = reinterpret_cast<const float4*>(other)[i];
    reinterpret_cast<float4*>(out)[i] = make_float4(a.x * b.x, a.y * b.y, a.z * b.z, a.w * b.w);
  }
}
// [vectors]

// [half_scalar]
__global__ void half_scalar(const __half* self, const __half* other, __half* out, int64_t size) {
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < size) out[i] = __hmul(self[i], other[i]);
}
// [half_scalar]

// [half2]
__global__ void half2_pairs(const __half* self, const __half* other, __half* out, int64_t size) {
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x, pairs = size / 2;
  if (i < pairs) {
    reinterpret_cast<__half2*>(out)[i] = __hmul2(reinterpret_cast<const __half2*>(self)[i],
                                                 reinterpret_cast<const __half2*>(other)[i]);
  } else if (2 * i < size) {  // the last element of an odd number
    out[2 * i] = __hmul(self[2 * i], other[2 * i]);
  }
}
// [half2]

// [half_vectors]
__device__ unsigned mul_pairs(unsigned a, unsigned b) {
  const __half2 both =
      __hmul2(reinterpret_cast<const __half2&>(a), reinterpret_cast<const __half2&>(b));
  return reinterpret_cast<const unsigned&>(both);
}

// Loads uint4, not a struct of four __half2: the compiler moves such a struct by four accesses,
// because __half2 is a class with its own copy functions.
__global__ void half_vectors(const __half* self, const __half* other, __half* out, int64_t size) {
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x, vecs = size / 8;
  if (i < size % 8) out[vecs * 8 + i] = __hmul(self[vecs * 8 + i], other[vecs * 8 + i]);
  if (i >= vecs) return;
  const uint4 a = reinterpret_cast<const uint4*>(self)[i];
  const uint4 b = reinterpret_cast<const uint4*>(other)[i];
  reinterpret_cast<uint4*>(out)[i] = make_uint4(mul_pairs(a.x, b.x), mul_pairs(a.y, b.y),
                                                mul_pairs(a.z, b.z), mul_pairs(a.w, b.w));
}
// [half_vectors]

// The number of blocks with one thread for every `values` elements.
unsigned blocks_for_all(const LadderProblem& problem, int64_t values) {
  return static_cast<unsigned>(ceil_div(problem.size, kThreads * values));
}

// As many blocks as fit on the GPU at once (2048 threads per SM), or fewer if some threads would
// have fewer than `values` elements.
unsigned blocks_to_fill(const LadderProblem& problem, int64_t values) {
  return static_cast<unsigned>(
      min(ceil_div(problem.size, kThreads * values), int64_t{problem.sms} * (2048 / kThreads)));
}

template <typename T>
cudaError_t launch(void (*kernel)(const T*, const T*, T*, int64_t), unsigned blocks,
                   const LadderProblem& problem, cudaStream_t stream) {
  kernel<<<blocks, kThreads, 0, stream>>>(static_cast<const T*>(problem.self),
                                          static_cast<const T*>(problem.other),
                                          static_cast<T*>(problem.out), problem.size);
  return cudaGetLastError();
}

}  // namespace

cudaError_t ladder_mul(int step, const LadderProblem& problem, cudaStream_t stream) {
  if (problem.size == 0) return cudaSuccess;
  if (step == 0) return launch(one_a_thread, blocks_for_all(problem, 1), problem, stream);
  if (step == 1) return launch(grid_stride, blocks_to_fill(problem, 1), problem, stream);
  if (step == 2) return launch(vectors, blocks_to_fill(problem, 4), problem, stream);
  if (step == 3) return launch(half_scalar, blocks_for_all(problem, 1), problem, stream);
  if (step == 4) return launch(half2_pairs, blocks_for_all(problem, 2), problem, stream);
  if (step == 5) return launch(half_vectors, blocks_for_all(problem, 8), problem, stream);
  return cudaErrorInvalidValue;
}

}  // namespace gpuopt::elementwise
