// The forward steps of norm_ladder.h. docs/ladder shows the code of a step between two equal marks
// in brackets.
#include <bit>

#include "common/index.h"
#include "common/strided.h"
#include "common/warp.cuh"
#include "norm/device/norm_access.cuh"
#include "norm/ladder/norm_ladder.h"

namespace gpuopt::norm {
namespace {

constexpr int kThreads = 256;
constexpr int kLongest = 1024;  // values of a row that a warp keeps in registers

template <typename T>
using Operands = LadderForward<T>;

// [two_passes]
// The sum over the threads of a block. All of them get it.
__device__ float add_in_block(float sum) {
  __shared__ float sums[kThreads];
  sums[threadIdx.x] = sum;
  __syncthreads();
  for (unsigned apart = kThreads / 2; apart > 0; apart /= 2) {
    if (threadIdx.x < apart) sums[threadIdx.x] += sums[threadIdx.x + apart];
    __syncthreads();
  }
  sum = sums[0];
  __syncthreads();  // the next sum overwrites it
  return sum;
}

// A value of the result.
template <typename T>
__device__ T result(T value, float mean, float rstd, T weight, T bias) {
  const float normal = (to_compute(value) - mean) * rstd;
  return from_compute<T>(normal * to_compute(weight) + to_compute(bias));
}

template <typename T>
__global__ void two_passes(Operands<T> all) {
  const int64_t first = int64_t{blockIdx.x} * all.length;
  const T* row = all.input + first;
  float sum = 0, squares = 0;
  for (int64_t i = threadIdx.x; i < all.length; i += kThreads) sum += to_compute(row[i]);
  const float mean = add_in_block(sum) / all.length;
  for (int64_t i = threadIdx.x; i < all.length; i += kThreads) {
    const float deviation = to_compute(row[i]) - mean;
    squares += deviation * deviation;
  }
  const float rstd = inverse_root(add_in_block(squares) / all.length + kLadderEps);
  for (int64_t i = threadIdx.x; i < all.length; i += kThreads) {
    all.out[first + i] = result(row[i], mean, rstd, all.weight[i], all.bias[i]);
  }
}
// [two_passes]

// [welford]
struct Moments {
  float count = 0, mean = 0;
  float squares = 0;  // the sum of squared deviations from the mean

  __device__ void add(float value) {
    const float before = value - mean;
    count += 1;
    mean += before / count;
    squares += before * (value - mean);
  }
};

struct Statistics {
  float mean, rstd;
};

// The statistics of a row from the moments of each thread's part. `add` is a sum over the threads.
template <typename Add>
__device__ Statistics statistics_of(const Moments& part, int64_t length, Add add) {
  const float mean = add(part.count * part.mean) / length, apart = part.mean - mean;
  const float squares = add(part.squares + part.count * apart * apart);
  return {mean, inverse_root(squares / length + kLadderEps)};
}

template <typename T>
__global__ void welford(Operands<T> all) {
  const int64_t first = int64_t{blockIdx.x} * all.length;
  const T* row = all.input + first;
  Moments part;
  for (int64_t i = threadIdx.x; i < all.length; i += kThreads) part.add(to_compute(row[i]));
  const auto [mean, rstd] = statistics_of(part, all.length, add_in_block);
  for (int64_t i = threadIdx.x; i < all.length; i += kThreads) {
    all.out[first + i] = result(row[i], mean, rstd, all.weight[i], all.bias[i]);
  }
}
// [welford]

// [warp_per_row]
// The sum over the lanes of a warp. All of them get the same bits.
__device__ float add_in_warp(float sum) {
#pragma unroll
  for (int apart = 1; apart < kWarp; apart *= 2) sum += shuffle_xor(sum, apart);
  return sum;
}

__device__ int64_t row_of_warp() {
  return int64_t{blockIdx.x} * (kThreads / kWarp) + threadIdx.x / kWarp;
}

template <typename T>
__global__ void warp_per_row(Operands<T> all) {
  const int64_t first = row_of_warp() * all.length, lane = threadIdx.x % kWarp;
  if (row_of_warp() >= all.rows) return;
  const T* row = all.input + first;
  Moments part;
  for (int64_t i = lane; i < all.length; i += kWarp) part.add(to_compute(row[i]));
  const auto [mean, rstd] = statistics_of(part, all.length, add_in_warp);
  for (int64_t i = lane; i < all.length; i += kWarp) {
    all.out[first + i] = result(row[i], mean, rstd, all.weight[i], all.bias[i]);
  }
}
// [warp_per_row]

// [vectors]
// Computes the vector of the result at position i of the row that begins at `first`.
template <typename T, int kValues>
__device__ void write_vec(const Operands<T>& all, int64_t first, int64_t i,
                          const Statistics& of_row, const Vec<T, kValues>& values) {
  const auto weights = load_vec<T, kValues>(all.weight + i);
  const auto biases = load_vec<T, kValues>(all.bias + i);
  Vec<T, kValues> out;
#pragma unroll
  for (int k = 0; k < kValues; ++k) {
    out.values[k] =
        result(values.values[k], of_row.mean, of_row.rstd, weights.values[k], biases.values[k]);
  }
  store_vec(all.out + first + i, out);
}

template <typename T, int kValues>
__global__ void vectors(Operands<T> all) {
  const int64_t first = row_of_warp() * all.length, lane = threadIdx.x % kWarp;
  if (row_of_warp() >= all.rows) return;
  const T* row = all.input + first;
  Moments part;
  for (int64_t i = lane * kValues; i < all.length; i += kWarp * kValues) {
    const auto values = load_vec<T, kValues>(row + i);
#pragma unroll
    for (int k = 0; k < kValues; ++k) part.add(to_compute(values.values[k]));
  }
  const Statistics of_row = statistics_of(part, all.length, add_in_warp);
  for (int64_t i = lane * kValues; i < all.length; i += kWarp * kValues) {
    write_vec(all, first, i, of_row, load_vec<T, kValues>(row + i));
  }
}
// [vectors]

// [registers]
template <typename T, int kValues>
__global__ void registers(Operands<T> all) {
  constexpr int kSlots = kLongest / (kWarp * kValues);  // vectors of a thread
  const int64_t first = row_of_warp() * all.length;
  if (row_of_warp() >= all.rows) return;
  const int length = static_cast<int>(all.length), lane = threadIdx.x % kWarp;
  const auto position = [&](int slot) { return (slot * kWarp + lane) * kValues; };
  Vec<T, kValues> slots[kSlots];
  float sum = 0, squares = 0;
#pragma unroll
  for (int s = 0; s < kSlots; ++s) {
    // Zeros behind the end of the row.
    slots[s] = load_unit<T, kValues>(all.input + first + position(s), position(s) < length);
#pragma unroll
    for (int k = 0; k < kValues; ++k) sum += to_compute(slots[s].values[k]);
  }
  const float mean = add_in_warp(sum) / length;
#pragma unroll
  for (int s = 0; s < kSlots; ++s) {
#pragma unroll
    for (int k = 0; k < kValues; ++k) {
      const float deviation = to_compute(slots[s].values[k]) - mean;
      if (position(s) < length) squares += deviation * deviation;
    }
  }
  const float rstd = inverse_root(add_in_warp(squares) / length + kLadderEps);
#pragma unroll
  for (int s = 0; s < kSlots; ++s) {
    if (position(s) < length) write_vec(all, first, position(s), {mean, rstd}, slots[s]);
  }
}
// [registers]

template <typename T, int kValues>
cudaError_t launch(int step, const Operands<T>& all, cudaStream_t stream) {
  constexpr void (*kKernels[])(Operands<T>) = {two_passes<T>, welford<T>, warp_per_row<T>,
                                               vectors<T, kValues>, registers<T, kValues>};
  const auto kernel = kKernels[step == 4 && all.length > kLongest ? 3 : step];
  const int64_t rows_of_block = step < 2 ? 1 : kThreads / kWarp;
  const auto blocks = static_cast<unsigned>(ceil_div(all.rows, rows_of_block));
  kernel<<<blocks, kThreads, 0, stream>>>(all);
  return cudaGetLastError();
}

template <typename T>
cudaError_t launch(int step, const LadderForward<void>& problem, cudaStream_t stream) {
  const auto all = std::bit_cast<Operands<T>>(problem);
  const bool has_vecs = all.length % kVecSize<T> == 0 && is_aligned(all.input, kAccessBytes) &&
                        is_aligned(all.weight, kAccessBytes) &&
                        is_aligned(all.bias, kAccessBytes) && is_aligned(all.out, kAccessBytes);
  return has_vecs ? launch<T, kVecSize<T>>(step, all, stream) : launch<T, 1>(step, all, stream);
}

}  // namespace

cudaError_t ladder_forward(int step, DType dtype, const LadderForward<void>& problem,
                           cudaStream_t stream) {
  if (step < 0 || step > 4) return cudaErrorInvalidValue;
  return dtype == DType::kFloat32 ? launch<float>(step, problem, stream)
                                  : launch<__nv_bfloat16>(step, problem, stream);
}

}  // namespace gpuopt::norm
