// The backward steps of norm_ladder.h. docs/ladder shows the code of a step between two equal marks
// in brackets.
#include <bit>

#include "common/index.h"
#include "norm/device/norm_access.cuh"
#include "norm/device/norm_group.cuh"
#include "norm/ladder/norm_ladder.h"

namespace gpuopt::norm {
namespace {

constexpr int kThreads = 256;
constexpr int kSumWarps = 32;       // of a block that adds partial sums
constexpr int kSlots = 4;           // columns of a thread in "partial_sums"
constexpr int kMostThreads = 1024;  // of a block of "partial_sums"

template <typename T>
using Operands = LadderBackward<T>;

// [columns_by_atomics]
// What one value adds to the gradients: of the weight grad * normal, and of the bias grad.
struct Terms {
  float grad, normal, scaled;
};

template <typename T>
__device__ Terms terms_of(const Operands<T>& all, int64_t row, int64_t column) {
  const int64_t i = row * all.length + column;
  const float grad = to_compute(all.grad[i]);
  const float normal = (to_compute(all.input[i]) - all.mean[row]) * all.rstd[row];
  return {grad, normal, grad * to_compute(all.weight[column])};
}

// A block has a row.
template <typename T>
__global__ void input_gradient(Operands<T> all) {
  __shared__ float shared[2 * kMaxWarps];
  const int64_t row = blockIdx.x;
  float sums[2] = {};
  for (int64_t i = threadIdx.x; i < all.length; i += kThreads) {
    const Terms terms = terms_of(all, row, i);
    sums[0] += terms.scaled;
    sums[1] += terms.scaled * terms.normal;
  }
  add_up(Group(kThreads), sums, shared);  // over the threads of the block
  const float means[2] = {sums[0] / all.length, sums[1] / all.length};
  for (int64_t i = threadIdx.x; i < all.length; i += kThreads) {
    const Terms terms = terms_of(all, row, i);
    const float inner = terms.scaled - means[0] - terms.normal * means[1];
    all.input_grad[row * all.length + i] = from_compute<T>(inner * all.rstd[row]);
  }
}

// sums: [2][length], of weight and bias
template <typename T>
__global__ void columns_by_atomics(Operands<T> all, float* sums) {
  for (int64_t i = threadIdx.x; i < all.length; i += kThreads) {
    const Terms terms = terms_of(all, blockIdx.x, i);
    atomicAdd(sums + i, terms.grad * terms.normal);
    atomicAdd(sums + all.length + i, terms.grad);
  }
}
// [columns_by_atomics]

// [column_tiles]
// The sum over the warps of a block, in order. Only the first warp gets it.
template <int kWarps>
__device__ float add_warps(float sum) {
  __shared__ float sums[kWarps][kWarp];
  const unsigned warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  __syncthreads();  // threads have read the sum before
  sums[warp][lane] = sum;
  __syncthreads();
  for (int other = 1; other < kWarps && warp == 0; ++other) sum += sums[other][lane];
  return sum;
}

// A block has 32 columns of `chunk` rows. partials: [chunks][2][length]
template <typename T>
__global__ void column_tiles(Operands<T> all, float* partials, int64_t tiles, int64_t chunk) {
  const int64_t column = blockIdx.x % tiles * kWarp + threadIdx.x % kWarp;
  const int64_t number = blockIdx.x / tiles, end = min((number + 1) * chunk, all.rows);
  float weight_sum = 0, bias_sum = 0;
  if (column < all.length) {
    for (int64_t row = number * chunk + threadIdx.x / kWarp; row < end; row += kThreads / kWarp) {
      const Terms terms = terms_of(all, row, column);
      weight_sum += terms.grad * terms.normal;
      bias_sum += terms.grad;
    }
  }
  weight_sum = add_warps<kThreads / kWarp>(weight_sum);
  bias_sum = add_warps<kThreads / kWarp>(bias_sum);
  if (threadIdx.x >= kWarp || column >= all.length) return;
  partials[2 * number * all.length + column] = weight_sum;
  partials[(2 * number + 1) * all.length + column] = bias_sum;
}

// A block adds 32 columns of `count` partial sums. The columns of the weight come first, then the
// columns of the bias.
template <typename T>
__global__ void add_partials(Operands<T> all, const float* partials, int64_t count) {
  const int64_t column = int64_t{blockIdx.x} * kWarp + threadIdx.x % kWarp;
  float sum = 0;
  for (int64_t i = threadIdx.x / kWarp; i < count && column < 2 * all.length; i += kSumWarps) {
    sum += partials[2 * i * all.length + column];
  }
  sum = add_warps<kSumWarps>(sum);
  if (threadIdx.x >= kWarp || column >= 2 * all.length) return;
  T* out = column < all.length ? all.weight_grad : all.bias_grad;
  out[column % all.length] = from_compute<T>(sum);
}
// [column_tiles]

// [partial_sums]
// A thread has up to kSlots columns, the same ones of all rows of its block.
template <typename T>
__global__ void __launch_bounds__(kMostThreads) partial_sums(Operands<T> all, float* partials) {
  __shared__ float shared[2][2 * kMaxWarps];  // two rows in turn, so that one barrier a row is left
  const auto column = [](int slot) { return slot * blockDim.x + threadIdx.x; };
  float weight_sums[kSlots] = {}, bias_sums[kSlots] = {};
  unsigned parity = 0;
  for (int64_t row = blockIdx.x; row < all.rows; row += gridDim.x, parity ^= 1) {
    Terms terms[kSlots] = {};
    float sums[2] = {};
#pragma unroll
    for (int s = 0; s < kSlots; ++s) {
      if (column(s) < all.length) terms[s] = terms_of(all, row, column(s));
      weight_sums[s] += terms[s].grad * terms[s].normal;
      bias_sums[s] += terms[s].grad;
      sums[0] += terms[s].scaled;
      sums[1] += terms[s].scaled * terms[s].normal;
    }
    add_up(Group(blockDim.x), sums, shared[parity]);
    const float means[2] = {sums[0] / all.length, sums[1] / all.length};
#pragma unroll
    for (int s = 0; s < kSlots; ++s) {
      if (column(s) >= all.length) break;
      const float inner = terms[s].scaled - means[0] - terms[s].normal * means[1];
      all.input_grad[row * all.length + column(s)] = from_compute<T>(inner * all.rstd[row]);
    }
  }
#pragma unroll
  for (int s = 0; s < kSlots; ++s) {
    if (column(s) >= all.length) break;
    float* partial = partials + 2 * blockIdx.x * all.length + column(s);
    partial[0] = weight_sums[s];
    partial[all.length] = bias_sums[s];
  }
}
// [partial_sums]

// Launches a step, which leaves `count` partial sums of all columns in a workspace.
template <typename T>
cudaError_t launch(int step, int sms, const Operands<T>& all, Workspace& workspace,
                   cudaStream_t stream) {
  const auto rows = static_cast<unsigned>(all.rows);
  const auto allocate = [&](int64_t count) {
    return static_cast<float*>(workspace.allocate(count * 2 * all.length * sizeof(float)));
  };
  int64_t count = 1;
  float* partials = nullptr;
  if (step == 2 && all.length <= kSlots * kMostThreads) {
    const int64_t threads = ceil_div<int64_t>(all.length, kSlots * kWarp) * kWarp;
    count = min(all.rows, sms * (kMostThreads / threads));  // an SM has 1024 threads
    partials = allocate(count);
    partial_sums<T><<<static_cast<unsigned>(count), static_cast<unsigned>(threads), 0, stream>>>(
        all, partials);
  } else {
    input_gradient<T><<<rows, kThreads, 0, stream>>>(all);
  }
  if (step == 0) {
    partials = allocate(count);
    const cudaError_t error = cudaMemsetAsync(partials, 0, 2 * all.length * sizeof(float), stream);
    if (error != cudaSuccess) return error;
    columns_by_atomics<T><<<rows, kThreads, 0, stream>>>(all, partials);
  } else if (partials == nullptr) {
    // About 8 blocks for each SM, with at least 8 rows for each warp.
    const int64_t tiles = ceil_div<int64_t>(all.length, kWarp);
    const int64_t chunk = max(ceil_div(all.rows * tiles, int64_t{8} * sms), int64_t{64});
    count = ceil_div(all.rows, chunk);
    partials = allocate(count);
    column_tiles<T><<<static_cast<unsigned>(tiles * count), kThreads, 0, stream>>>(all, partials,
                                                                                   tiles, chunk);
  }
  const auto blocks = static_cast<unsigned>(ceil_div<int64_t>(2 * all.length, kWarp));
  add_partials<T><<<blocks, kSumWarps * kWarp, 0, stream>>>(all, partials, count);
  return cudaGetLastError();
}

}  // namespace

cudaError_t ladder_backward(int step, DType dtype, int sms, const LadderBackward<void>& problem,
                            Workspace& workspace, cudaStream_t stream) {
  if (step < 0 || step > 2) return cudaErrorInvalidValue;
  if (dtype == DType::kFloat32) {
    return launch(step, sms, std::bit_cast<Operands<float>>(problem), workspace, stream);
  }
  return launch(step, sms, std::bit_cast<Operands<__nv_bfloat16>>(problem), workspace, stream);
}

}  // namespace gpuopt::norm
