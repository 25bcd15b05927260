// The steps of reduce_ladder.h. docs/ladder shows the code of a step between two equal marks in
// brackets.
#include <cmath>

#include "common/index.h"
#include "reduce/ladder/reduce_ladder.h"

namespace gpuopt::reduce {
namespace {

constexpr int kThreads = 256;

struct Sum {
  static constexpr float kIdentity = 0.f;
  __device__ float operator()(float a, float b) const { return a + b; }
  static __device__ void atomic(float* to, float value) { atomicAdd(to, value); }
};

struct Max {
  static constexpr float kIdentity = -INFINITY;
  // The result is NaN if either operand is.
  __device__ float operator()(float a, float b) const { return a > b || a != a ? a : b; }
  // The bits of non-negative floats are in order as signed integers. The bits of negative floats
  // are in reverse order as unsigned integers. A positive NaN is above all numbers.
  static __device__ void atomic(float* to, float value) {
    const int bits = value != value ? 0x7fffffff : __float_as_int(value);
    if (bits >= 0) {
      atomicMax(reinterpret_cast<int*>(to), bits);
    } else {
      atomicMin(reinterpret_cast<unsigned*>(to), static_cast<unsigned>(bits));
    }
  }
};

// [interleaved_modulo]
template <typename Op>
__global__ void interleaved_modulo(const float* in, int64_t size, float* out) {
  __shared__ float values[kThreads];
  const unsigned own = threadIdx.x;
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + own;
  values[own] = i < size ? in[i] : Op::kIdentity;
  __syncthreads();
  for (unsigned apart = 1; apart < blockDim.x; apart *= 2) {
    if (own % (2 * apart) == 0) values[own] = Op()(values[own], values[own + apart]);
    __syncthreads();
  }
  if (own == 0) out[blockIdx.x] = values[0];
}
// [interleaved_modulo]

// [interleaved_strided]
template <typename Op>
__global__ void interleaved_strided(const float* in, int64_t size, float* out) {
  __shared__ float values[kThreads];
  const unsigned own = threadIdx.x;
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + own;
  values[own] = i < size ? in[i] : Op::kIdentity;
  __syncthreads();
  for (unsigned apart = 1; apart < blockDim.x; apart *= 2) {
    const unsigned first = 2 * apart * own;
    if (first < blockDim.x) values[first] = Op()(values[first], values[first + apart]);
    __syncthreads();
  }
  if (own == 0) out[blockIdx.x] = values[0];
}
// [interleaved_strided]

// [sequential]
template <typename Op>
__global__ void sequential(const float* in, int64_t size, float* out) {
  __shared__ float values[kThreads];
  const unsigned own = threadIdx.x;
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + own;
  values[own] = i < size ? in[i] : Op::kIdentity;
  __syncthreads();
  for (unsigned apart = blockDim.x / 2; apart > 0; apart /= 2) {
    if (own < apart) values[own] = Op()(values[own], values[own + apart]);
    __syncthreads();
  }
  if (own == 0) out[blockIdx.x] = values[0];
}
// [sequential]

// [first_add_on_load]
template <typename Op>
__device__ float load_two(const float* in, int64_t size) {
  const int64_t i = int64_t{blockIdx.x} * (2 * blockDim.x) + threadIdx.x, j = i + blockDim.x;
  return Op()(i < size ? in[i] : Op::kIdentity, j < size ? in[j] : Op::kIdentity);
}

template <typename Op>
__global__ void first_add_on_load(const float* in, int64_t size, float* out) {
  __shared__ float values[kThreads];
  const unsigned own = threadIdx.x;
  values[own] = load_two<Op>(in, size);
  __syncthreads();
  for (unsigned apart = blockDim.x / 2; apart > 0; apart /= 2) {
    if (own < apart) values[own] = Op()(values[own], values[own + apart]);
    __syncthreads();
  }
  if (own == 0) out[blockIdx.x] = values[0];
}
// [first_add_on_load]

// [last_warp_unrolled]
// Called by the first warp, which synchronises between every read and the next write.
template <typename Op>
__device__ void combine_last_64(float* values) {
  const unsigned own = threadIdx.x;
#pragma unroll
  for (unsigned apart = 32; apart > 0; apart /= 2) {
    const float both = Op()(values[own], values[own + apart]);
    __syncwarp();
    values[own] = both;
    __syncwarp();
  }
}

template <typename Op>
__global__ void last_warp_unrolled(const float* in, int64_t size, float* out) {
  __shared__ float values[kThreads];
  const unsigned own = threadIdx.x;
  values[own] = load_two<Op>(in, size);
  __syncthreads();
  for (unsigned apart = blockDim.x / 2; apart > 32; apart /= 2) {
    if (own < apart) values[own] = Op()(values[own], values[own + apart]);
    __syncthreads();
  }
  if (own < 32) combine_last_64<Op>(values);
  if (own == 0) out[blockIdx.x] = values[0];
}
// [last_warp_unrolled]

// [completely_unrolled]
// Reduces kBlock values to values[0].
template <typename Op, unsigned kBlock>
__device__ void combine(float* values) {
  const unsigned own = threadIdx.x;
  __syncthreads();
#pragma unroll
  for (unsigned apart = kBlock / 2; apart > 32; apart /= 2) {
    if (own < apart) values[own] = Op()(values[own], values[own + apart]);
    __syncthreads();
  }
  if (own < 32) combine_last_64<Op>(values);
}

template <typename Op>
__global__ void completely_unrolled(const float* in, int64_t size, float* out) {
  __shared__ float values[kThreads];
  values[threadIdx.x] = load_two<Op>(in, size);
  combine<Op, kThreads>(values);
  if (threadIdx.x == 0) out[blockIdx.x] = values[0];
}
// [completely_unrolled]

// [grid_stride]
template <typename Op>
__device__ float combine_every(const float* in, int64_t size) {
  float value = Op::kIdentity;
  const int64_t step = int64_t{gridDim.x} * kThreads;
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < size; i += step) {
    value = Op()(value, in[i]);
  }
  return value;
}

template <typename Op>
__global__ void grid_stride(const float* in, int64_t size, float* out) {
  __shared__ float values[kThreads];
  values[threadIdx.x] = combine_every<Op>(in, size);
  combine<Op, kThreads>(values);
  if (threadIdx.x == 0) out[blockIdx.x] = values[0];
}
// [grid_stride]

// [warp_shuffle]
template <typename Op>
__device__ float combine_warp(float value) {
#pragma unroll
  for (unsigned apart = 16; apart > 0; apart /= 2) {
    value = Op()(value, __shfl_down_sync(0xffffffffu, value, apart));
  }
  return value;  // complete in lane 0
}

// Reduces `value` over the block. The result is complete in thread 0.
template <typename Op>
__device__ float combine_block(float value) {
  __shared__ float of_warps[kThreads / 32];
  const unsigned warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  value = combine_warp<Op>(value);
  if (lane == 0) of_warps[warp] = value;
  __syncthreads();
  if (warp == 0) value = combine_warp<Op>(lane < kThreads / 32 ? of_warps[lane] : Op::kIdentity);
  return value;
}

template <typename Op>
__global__ void warp_shuffle(const float* in, int64_t size, float* out) {
  const float value = combine_block<Op>(combine_every<Op>(in, size));
  if (threadIdx.x == 0) out[blockIdx.x] = value;
}
// [warp_shuffle]

// [vectors]
template <typename Op>
__device__ float combine_vecs(const float* in, int64_t size) {
  float value = Op::kIdentity;
  const int64_t step = int64_t{gridDim.x} * kThreads, vecs = size / 4;
  int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i < size % 4) value = in[vecs * 4 + i];
  for (; i < vecs; i += step) {
    const float4 vec = reinterpret_cast<const float4*>(in)[i];
    value = Op()(value, Op()(Op()(vec.x, vec.y), Op()(vec.z, vec.w)));
  }
  return value;
}

template <typename Op>
__global__ void vectors(const float* in, int64_t size, float* out) {
  const float value = combine_block<Op>(combine_vecs<Op>(in, size));
  if (threadIdx.x == 0) out[blockIdx.x] = value;
}
// [vectors]

// [float_atomic]
__global__ void set(float* out, float value) { *out = value; }

template <typename Op>
__global__ void float_atomic(const float* in, int64_t size, float* out) {
  const float value = combine_block<Op>(combine_vecs<Op>(in, size));
  if (threadIdx.x == 0) Op::atomic(out, value);
}
// [float_atomic]

// [last_block_ticket]
template <typename Op>
__global__ void last_block_ticket(const float* in, int64_t size, float* partial, unsigned* tickets,
                                  float* out) {
  __shared__ bool is_last;
  const float value = combine_block<Op>(combine_vecs<Op>(in, size));
  if (threadIdx.x == 0) {
    partial[blockIdx.x] = value;
    __threadfence();  // whoever sees the ticket sees the partial result
    is_last = atomicAdd(tickets, 1u) == gridDim.x - 1;
  }
  __syncthreads();
  if (!is_last) return;
  __threadfence();
  float all = Op::kIdentity;
  for (unsigned i = threadIdx.x; i < gridDim.x; i += kThreads) all = Op()(all, __ldcg(partial + i));
  all = combine_block<Op>(all);
  if (threadIdx.x == 0) *out = all;
}
// [last_block_ticket]

using Kernel = void (*)(const float*, int64_t, float*);

// A block reduces `block_values` values to one. Launches until one value is left.
cudaError_t launch_tree(Kernel kernel, int64_t block_values, const LadderProblem& problem,
                        Workspace& workspace, cudaStream_t stream) {
  const float* in = problem.in;
  for (int64_t size = problem.size;;) {
    const int64_t blocks = max(ceil_div(size, block_values), int64_t{1});
    float* out = problem.out;
    if (blocks > 1) out = static_cast<float*>(workspace.allocate(blocks * sizeof(float)));
    kernel<<<static_cast<unsigned>(blocks), kThreads, 0, stream>>>(in, size, out);
    if (blocks == 1) return cudaGetLastError();
    in = out;
    size = blocks;
  }
}

// As many blocks as fit on the GPU at once (2048 threads per SM), or fewer if some threads would
// have fewer than `values` elements.
unsigned blocks_to_fill(const LadderProblem& problem, int64_t values) {
  const int64_t needed = ceil_div(problem.size, kThreads * values);
  return static_cast<unsigned>(
      min(max(needed, int64_t{1}), int64_t{problem.sms} * (2048 / kThreads)));
}

// One launch for all values, and one of a single block for the partial results.
cudaError_t launch_two(Kernel kernel, int64_t values, const LadderProblem& problem,
                       Workspace& workspace, cudaStream_t stream) {
  const unsigned blocks = blocks_to_fill(problem, values);
  auto* partial = static_cast<float*>(workspace.allocate(blocks * sizeof(float)));
  kernel<<<blocks, kThreads, 0, stream>>>(problem.in, problem.size, partial);
  kernel<<<1, kThreads, 0, stream>>>(partial, blocks, problem.out);
  return cudaGetLastError();
}

template <typename Op>
cudaError_t launch_atomic(const LadderProblem& problem, cudaStream_t stream) {
  const unsigned blocks = blocks_to_fill(problem, 4);
  set<<<1, 1, 0, stream>>>(problem.out, Op::kIdentity);
  float_atomic<Op><<<blocks, kThreads, 0, stream>>>(problem.in, problem.size, problem.out);
  return cudaGetLastError();
}

template <typename Op>
cudaError_t launch_ticket(const LadderProblem& problem, Workspace& workspace, cudaStream_t stream) {
  const unsigned blocks = blocks_to_fill(problem, 4);
  auto* partial = static_cast<float*>(workspace.allocate(blocks * sizeof(float)));
  auto* tickets = static_cast<unsigned*>(workspace.allocate(sizeof(unsigned)));
  const cudaError_t error = cudaMemsetAsync(tickets, 0, sizeof(unsigned), stream);
  if (error != cudaSuccess) return error;
  last_block_ticket<Op>
      <<<blocks, kThreads, 0, stream>>>(problem.in, problem.size, partial, tickets, problem.out);
  return cudaGetLastError();
}

template <typename Op>
cudaError_t launch_step(int step, const LadderProblem& problem, Workspace& workspace,
                        cudaStream_t stream) {
  constexpr Kernel kOfTree[] = {interleaved_modulo<Op>, interleaved_strided<Op>,
                                sequential<Op>,         first_add_on_load<Op>,
                                last_warp_unrolled<Op>, completely_unrolled<Op>};
  if (step < 6) {
    return launch_tree(kOfTree[step], step < 3 ? kThreads : 2 * kThreads, problem, workspace,
                       stream);
  }
  if (step == 6) return launch_two(grid_stride<Op>, 1, problem, workspace, stream);
  if (step == 7) return launch_two(warp_shuffle<Op>, 1, problem, workspace, stream);
  if (step == 8) return launch_two(vectors<Op>, 4, problem, workspace, stream);
  if (step == 9) return launch_atomic<Op>(problem, stream);
  if (step == 10) return launch_ticket<Op>(problem, workspace, stream);
  return cudaErrorInvalidValue;
}

}  // namespace

cudaError_t ladder_sum(int step, const LadderProblem& problem, Workspace& workspace,
                       cudaStream_t stream) {
  return launch_step<Sum>(step, problem, workspace, stream);
}

cudaError_t ladder_max(int step, const LadderProblem& problem, Workspace& workspace,
                       cudaStream_t stream) {
  return launch_step<Max>(step, problem, workspace, stream);
}

}  // namespace gpuopt::reduce
