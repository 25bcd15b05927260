// The steps of dot_ladder.h. docs/ladder shows the code of a step between two equal marks in
// brackets.
#include "common/atomic.cuh"
#include "common/index.h"
#include "common/vec.cuh"
#include "dot/ladder/dot_ladder.h"

namespace gpuopt::dot {
namespace {

constexpr int kThreads = 256;

// [half_atomic]
__global__ void half_atomic(const __half* self, const __half* tensor, int64_t size, __half* out) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i < size) atomicAdd(out, __hmul(self[i], tensor[i]));
}
// [half_atomic]

// [block_then_half_atomic]
__device__ float sum_warp(float value) {
#pragma unroll
  for (unsigned apart = 16; apart > 0; apart /= 2) {
    value += __shfl_down_sync(0xffffffffu, value, apart);
  }
  return value;  // complete in lane 0
}

// The sum of `value` over the block, complete in thread 0.
__device__ float sum_block(float value) {
  __shared__ float of_warps[kThreads / 32];
  const unsigned warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  value = sum_warp(value);
  if (lane == 0) of_warps[warp] = value;
  __syncthreads();
  if (warp == 0) value = sum_warp(lane < kThreads / 32 ? of_warps[lane] : 0.f);
  return value;
}

__global__ void block_then_half_atomic(const __half* self, const __half* tensor, int64_t size,
                                       __half* out) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  const float sum = sum_block(i < size ? __half2float(self[i]) * __half2float(tensor[i]) : 0.f);
  if (threadIdx.x == 0) atomicAdd(out, __float2half(sum));
}
// [block_then_half_atomic]

// [half2_atomic]
__global__ void half2_atomic(const __half* self, const __half* tensor, int64_t size, __half* out) {
  const int64_t i = 2 * (int64_t{blockIdx.x} * kThreads + threadIdx.x);
  if (i >= size) return;
  __half2 products{__hmul(self[i], tensor[i]), __half{}};
  if (i + 1 < size) products.y = __hmul(self[i + 1], tensor[i + 1]);
  uint32_t bits;
  memcpy(&bits, &products, sizeof(bits));
  // CUDA's atomicAdd(__half2*) waits for the old value even if it is unused.
  atomic_add_pair(out, bits);
}

__global__ void add_two_sums(__half* out) { out[0] = __hadd(out[0], out[1]); }
// [half2_atomic]

// [fast_atomic]
__global__ void fast_atomic(const __half* self, const __half* tensor, int64_t size, __half* out) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i < size) atomic_add(out, __hmul(self[i], tensor[i]), /*first=*/out, /*end=*/out + 2);
}
// [fast_atomic]

// [f32_partial_sums]
__global__ void f32_partial_sums(const __half* self, const __half* tensor, int64_t size,
                                 float* partial) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  const float sum = sum_block(i < size ? __half2float(self[i]) * __half2float(tensor[i]) : 0.f);
  if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}

__global__ void add_partial_sums(const float* partial, unsigned blocks, __half* out) {
  float sum = 0.f;
  for (unsigned i = threadIdx.x; i < blocks; i += kThreads) sum += partial[i];
  sum = sum_block(sum);
  if (threadIdx.x == 0) *out = __float2half(sum);
}
// [f32_partial_sums]

// [vectors]
__device__ float dot_of_vecs(const Vec<__half, 8>& a, const Vec<__half, 8>& b) {
  float sum = 0.f;
#pragma unroll
  for (int k = 0; k < 8; ++k) sum += __half2float(a.values[k]) * __half2float(b.values[k]);
  return sum;
}

__global__ void vectors(const __half* self, const __half* tensor, int64_t size, float* partial) {
  float sum = 0.f;
  const int64_t step = int64_t{gridDim.x} * kThreads, whole = size / 8;
  int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i < size % 8) {
    sum = __half2float(self[whole * 8 + i]) * __half2float(tensor[whole * 8 + i]);
  }
  for (; i < whole; i += step) {
    const uint4 a = reinterpret_cast<const uint4*>(self)[i];
    const uint4 b = reinterpret_cast<const uint4*>(tensor)[i];
    sum += dot_of_vecs(vec_of<__half>(a), vec_of<__half>(b));
  }
  sum = sum_block(sum);
  if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}
// [vectors]

using Kernel = void (*)(const __half*, const __half*, int64_t, __half*);

// Sets both halves of the result to 0, then launches one thread for every `values` products.
cudaError_t launch_atomic(Kernel kernel, int64_t values, const LadderProblem& problem,
                          cudaStream_t stream) {
  const cudaError_t error = cudaMemsetAsync(problem.out, 0, 2 * sizeof(__half), stream);
  if (error != cudaSuccess || problem.size == 0) return error;
  const auto blocks = static_cast<unsigned>(ceil_div(problem.size, kThreads * values));
  kernel<<<blocks, kThreads, 0, stream>>>(static_cast<const __half*>(problem.self),
                                          static_cast<const __half*>(problem.tensor), problem.size,
                                          static_cast<__half*>(problem.out));
  return cudaGetLastError();
}

cudaError_t launch_half2_atomic(const LadderProblem& problem, cudaStream_t stream) {
  const cudaError_t error = launch_atomic(half2_atomic, 2, problem, stream);
  if (error != cudaSuccess) return error;
  add_two_sums<<<1, 1, 0, stream>>>(static_cast<__half*>(problem.out));
  return cudaGetLastError();
}

using PartialKernel = void (*)(const __half*, const __half*, int64_t, float*);

cudaError_t launch_partial_sums(PartialKernel kernel, unsigned blocks, const LadderProblem& problem,
                                Workspace& workspace, cudaStream_t stream) {
  auto* partial = static_cast<float*>(workspace.allocate(blocks * sizeof(float)));
  kernel<<<blocks, kThreads, 0, stream>>>(static_cast<const __half*>(problem.self),
                                          static_cast<const __half*>(problem.tensor), problem.size,
                                          partial);
  add_partial_sums<<<1, kThreads, 0, stream>>>(partial, blocks, static_cast<__half*>(problem.out));
  return cudaGetLastError();
}

// The number of blocks with this many products each, at least one.
unsigned blocks_of(int64_t products, const LadderProblem& problem) {
  return static_cast<unsigned>(max(ceil_div(problem.size, products), int64_t{1}));
}

// As many blocks as fit on the GPU at once (2048 threads per SM), or fewer if some threads would
// have no vector.
unsigned blocks_of_vecs(const LadderProblem& problem) {
  const auto most = static_cast<unsigned>(problem.sms * (2048 / kThreads));
  return min(blocks_of(8 * kThreads, problem), most);
}

}  // namespace

cudaError_t ladder_dot(int step, const LadderProblem& problem, Workspace& workspace,
                       cudaStream_t stream) {
  if (step == 0) return launch_atomic(half_atomic, 1, problem, stream);
  if (step == 1) return launch_atomic(block_then_half_atomic, 1, problem, stream);
  if (step == 2) return launch_half2_atomic(problem, stream);
  if (step == 3) return launch_atomic(fast_atomic, 1, problem, stream);
  if (step == 4) {
    const unsigned blocks = blocks_of(kThreads, problem);
    return launch_partial_sums(f32_partial_sums, blocks, problem, workspace, stream);
  }
  if (step == 5) {
    return launch_partial_sums(vectors, blocks_of_vecs(problem), problem, workspace, stream);
  }
  return cudaErrorInvalidValue;
}

}  // namespace gpuopt::dot
