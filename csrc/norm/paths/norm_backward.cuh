// Rows that fit in registers, backward. A block reads the rows of the input and of the gradient
// once, writes the gradient of the input, and adds up what its rows contribute to the gradients of
// weight and bias. A second kernel adds these partial gradients.
//
//   normal = (input - mean) * rstd          scaled = grad * weight
//   input_grad = rstd * (scaled - mean(scaled) - normal * mean(scaled * normal))
//   weight_grad = sum over the rows of grad * normal,  bias_grad = sum of grad
#pragma once

#include "common/async.cuh"
#include "common/launch.cuh"
#include "norm/device/norm_access.cuh"
#include "norm/device/norm_group.cuh"
#include "norm/norm_plan.h"

namespace gpuopt::norm {

// Adds the sums of all groups of a block, and writes them as the block's partial gradient. Every
// thread has the sums of its units. `shared` has a value for each thread and value of a unit.
template <typename C, int kValues, int kSlots>
__device__ __forceinline__ void store_partial(const Tiling& tiling, const Group& group,
                                              C (&sums)[kSlots][kValues], C* shared, C* partial) {
  const uint32_t width = group.lanes * kValues;  // values of a slot
  // Groups within a warp meet in its registers, so each set of threads in memory is a warp or a
  // larger group.
  const uint32_t sets = group.lanes < 32 ? blockDim.x / 32 : tiling.groups;
  const uint32_t set = group.lanes < 32 ? threadIdx.x / 32 : group.number;
  const bool is_first = group.lanes >= 32 || threadIdx.x % 32 < group.lanes;
#pragma unroll
  for (int s = 0; s < kSlots; ++s) {
    const int64_t begin = int64_t{s} * width;
    if (begin >= tiling.length) break;
    for (uint32_t step = group.lanes; step < 32; step *= 2) {
#pragma unroll
      for (int i = 0; i < kValues; ++i)
        sums[s][i] += shuffle_xor(sums[s][i], static_cast<int>(step));
    }
    __syncthreads();
    if (is_first) {
#pragma unroll
      for (int i = 0; i < kValues; ++i) shared[set * width + group.lane * kValues + i] = sums[s][i];
    }
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < width && begin + i < tiling.length; i += blockDim.x) {
      C sum = 0;
      for (uint32_t other = 0; other < sets; ++other) sum += shared[other * width + i];
      partial[begin + i] = sum;
    }
  }
}

// What a thread reads of its next rows: words in shared memory, some rows ahead. A thread reads
// back only what it has copied, so copies need no barrier. What is not valid is 0 and adds nothing.
template <typename T, int kValues, int kSlots>
struct RowsAhead {
  using C = compute_t<T>;
  using Unit = Words<T, kValues>;
  static constexpr int kStages = stages_of(kSlots, sizeof(Unit));
  // Asynchronous copies have at least 4 bytes. Smaller units are read where they are.
  static constexpr bool kIsCopied = sizeof(Unit) >= 4;
  const BackwardArgs& args;
  const Group& group;
  Unit* memory;  // [stage][slot][operand][thread], then the statistics
  // Input and gradient, and the gradient of a sum if there is one.
  static constexpr bool kIsSumCopied = sizeof(Unit) == kAccessBytes;
  const uint32_t operands = kIsSumCopied && args.sum_grad != nullptr ? 3 : 2;

  __device__ __forceinline__ C& statistic(int stage, int which) const {  // mean or rstd
    auto* statistics = reinterpret_cast<C*>(memory + kStages * kSlots * operands * blockDim.x);
    return statistics[(stage * 2 + which) * blockDim.x + threadIdx.x];
  }

  __device__ __forceinline__ Unit& unit(int stage, int slot, int operand) const {
    return memory[((stage * kSlots + slot) * operands + operand) * blockDim.x + threadIdx.x];
  }
  __device__ __forceinline__ const T* input(uint32_t row) const {
    return static_cast<const T*>(args.input) + args.input_rows.of(row);
  }
  __device__ __forceinline__ const T* grad(uint32_t row) const {
    return static_cast<const T*>(args.grad) + args.grad_rows.of(row);
  }
  __device__ __forceinline__ const T* sum_grad(uint32_t row) const {
    return static_cast<const T*>(args.sum_grad) + row * args.tiling.length;
  }
  __device__ __forceinline__ bool is_valid(uint32_t row, int slot) const {
    return row < args.tiling.rows && position(slot) < static_cast<uint32_t>(args.tiling.length);
  }
  __device__ __forceinline__ uint32_t position(int slot) const {
    return (group.lane + slot * group.lanes) * kValues;
  }
  __device__ __forceinline__ void copy(uint32_t row, int stage) const {
    const bool is_row = row < args.tiling.rows;
    if constexpr (kIsCopied) {
      const T* from[3] = {input(row), grad(row), sum_grad(row)};
#pragma unroll
      for (int s = 0; s < kSlots; ++s) {
#pragma unroll
        for (int a = 0; a < 3; ++a) {
          if (a == 2 && operands == 2) break;
          copy_async_if(&unit(stage, s, a), reinterpret_cast<const Unit*>(from[a] + position(s)),
                        is_valid(row, s));
        }
      }
    }
    copy_async_if(&statistic(stage, 0), static_cast<const C*>(args.mean) + row,
                  is_row && args.mean != nullptr);
    copy_async_if(&statistic(stage, 1), static_cast<const C*>(args.rstd) + row, is_row);
    end_copy_group();
  }
  __device__ __forceinline__ void wait() const { wait_for_copy_groups<kStages - 1>(); }

  // The gradient, and the normal values.
  __device__ __forceinline__ void read(uint32_t row, int stage, C (&grads)[kSlots][kValues],
                                       C (&normal)[kSlots][kValues]) const {
    const C mean = statistic(stage, 0), rstd = statistic(stage, 1);
#pragma unroll
    for (int s = 0; s < kSlots; ++s) {
      if constexpr (kIsCopied) {
        widen<T, kValues>(unit(stage, s, 0), normal[s]);
        widen<T, kValues>(unit(stage, s, 1), grads[s]);
      } else {
        widen<T, kValues>(load_word<Unit>(input(row) + position(s), is_valid(row, s)), normal[s]);
        widen<T, kValues>(load_word<Unit>(grad(row) + position(s), is_valid(row, s)), grads[s]);
      }
#pragma unroll
      for (int i = 0; i < kValues; ++i) normal[s][i] = (normal[s][i] - mean) * rstd;
    }
  }

  // What is added to the gradient of the input.
  __device__ __forceinline__ void read_sum_grad(uint32_t row, int stage, int slot,
                                                C (&values)[kValues]) const {
    if constexpr (kIsSumCopied) {
      widen<T, kValues>(unit(stage, slot, 2), values);
    } else {
      widen<T, kValues>(load_word<Unit>(sum_grad(row) + position(slot), is_valid(row, slot)),
                        values);
    }
  }
};

template <typename T, int kValues, int kSlots>
__global__ void __launch_bounds__(backward_threads(kSlots), 1)
    differentiate_rows(const __grid_constant__ BackwardArgs args) {
  using C = compute_t<T>;
  using Ahead = RowsAhead<T, kValues, kSlots>;
  extern __shared__ uint4 staged_memory[];
  __shared__ C exchanged[Ahead::kStages][kMaxWarps * 2];
  const Tiling& tiling = args.tiling;
  const Parameters& parameters = args.parameters;
  const Group group(tiling);
  const Ahead ahead{args, group, reinterpret_cast<typename Ahead::Unit*>(staged_memory)};
  const auto length = static_cast<uint32_t>(tiling.length);
  const C share = 1 / static_cast<C>(length);
  const uint32_t step = gridDim.x * tiling.groups;
  uint32_t row = blockIdx.x * tiling.groups + group.number;
  C weight_sums[kSlots][kValues] = {}, bias_sums[kSlots][kValues] = {};
  C weights[kSlots][kValues] = {};
  grid_dependency_wait();
  launch_next();
#pragma unroll
  for (int stage = 0; stage + 1 < Ahead::kStages; ++stage) ahead.copy(row + stage * step, stage);
#pragma unroll
  for (int s = 0; s < kSlots; ++s) {
    if (ahead.position(s) >= length) break;
    load_parameters<T>(parameters.weight, parameters.is_wide, ahead.position(s), C{1}, weights[s]);
  }
  // All threads of a block have equally many iterations.
#pragma unroll 1
  for (int stage = 0; row - group.number < tiling.rows;
       row += step, stage = stage + 1 < Ahead::kStages ? stage + 1 : 0) {
    ahead.copy(row + (Ahead::kStages - 1) * step, stage > 0 ? stage - 1 : Ahead::kStages - 1);
    ahead.wait();

    // Add up over rows and over columns.
    C scaled[kSlots][kValues], normal[kSlots][kValues];
    C sums[2] = {};
    ahead.read(row, stage, scaled, normal);
#pragma unroll
    for (int s = 0; s < kSlots; ++s) {
      C products[kValues];
#pragma unroll
      for (int i = 0; i < kValues; ++i) {
        C& value = scaled[s][i];
        weight_sums[s][i] = multiply_add(value, normal[s][i], weight_sums[s][i]);
        bias_sums[s][i] += value;
        value *= weights[s][i];
        products[i] = value * normal[s][i];
      }
      sums[0] += sum_of(scaled[s]);
      sums[1] += sum_of(products);
    }
    if (args.input_grad == nullptr) continue;
    add_up(group, sums, exchanged[stage]);
    if (row >= tiling.rows) continue;

    // Store.
    const C mean_scaled = args.mean != nullptr ? sums[0] * share : C{0};
    const C mean_product = sums[1] * share, rstd = ahead.statistic(stage, 1);
    T* out = static_cast<T*>(args.input_grad) + int64_t{row} * length;
#pragma unroll
    for (int s = 0; s < kSlots; ++s) {
      if (ahead.position(s) >= length) break;
      Vec<T, kValues> result;
      C added[kValues] = {};
      if (args.sum_grad != nullptr) ahead.read_sum_grad(row, stage, s, added);
#pragma unroll
      for (int i = 0; i < kValues; ++i) {
        const C inner = multiply_add(-normal[s][i], mean_product, scaled[s][i] - mean_scaled);
        result.values[i] = from_compute<T>(multiply_add(rstd, inner, added[i]));
      }
      store_vec(out + ahead.position(s), result);
    }
  }

  if (args.partials == nullptr) return;
  // The last copies are of rows that are not there, but they still write to memory.
  wait_for_copies();
  C* shared = reinterpret_cast<C*>(staged_memory);
  C* partial = static_cast<C*>(args.partials) + int64_t{blockIdx.x} * 2 * tiling.length;
  store_partial(tiling, group, weight_sums, shared, partial);
  if (args.has_bias) store_partial(tiling, group, bias_sums, shared, partial + tiling.length);
}

}  // namespace gpuopt::norm
