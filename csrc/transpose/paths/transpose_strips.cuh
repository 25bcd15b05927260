// Transposes small matrices, and matrices with few rows or few columns. A block handles a strip:
// several matrices, or whole rows or columns of one matrix. The strip of a dense input is a long
// run of the input, of the output or of both. It is copied to shared memory in the order of the
// input and read from there in the order of the output.
#pragma once

#include "common/async.cuh"
#include "common/launch.cuh"
#include "transpose/device/transpose_batch.cuh"

namespace gpuopt::transpose {

// The position of an element in the strip. Threads that assemble neighbouring vectors of a column
// read elements that are c vectors apart, where c is the number of elements in a row. A padding
// vector follows every 2^n vectors, where 2^n is the largest power of two that divides c (at least
// kLeastRoom). At most four of these threads then read from the same bank.
template <typename T>
__device__ __forceinline__ uint32_t strip_position(uint32_t element, const Args& args) {
  return element + (element >> args.room_shift) * kVecSize<T>;
}

// Loads N elements per access, of 4 bytes or more, and stores M.
template <typename T, int N, int M>
__global__ void __launch_bounds__(kThreads) strips_kernel(const __grid_constant__ Args args) {
  __shared__ uint4 shared[(kStripBytes + kStripBytes / kLeastRoom) / kAccessBytes];
  T* const strip = reinterpret_cast<T*>(shared);
  const uint32_t strip_rows = args.strip_rows.divisor, strip_columns = args.strip_columns.divisor;

  // Find the block's strip.
  uint32_t rest = blockIdx.x;
  const int64_t i0 = int64_t{args.row_tiles.divmod(rest)} * strip_rows;
  const int64_t j0 = int64_t{args.column_tiles.divmod(rest)} * strip_columns;
  const uint32_t first_matrix = rest * args.strip_matrices;
  // A strip is smaller at the end of a row, of a column or of the batch.
  const uint32_t matrices = min(args.matrices - first_matrix, args.strip_matrices);
  const auto rows = static_cast<uint32_t>(min(args.rows - i0, int64_t{strip_rows}));
  const auto columns = static_cast<uint32_t>(min(args.columns - j0, int64_t{strip_columns}));
  const uint32_t size = matrices * strip_rows * strip_columns;

  grid_dependency_wait();
  // Load the strip: as one run, or row by row.
  const T* const in = static_cast<const T*>(args.in) + i0 * args.row_stride + j0;
  if (args.in_flat) {
    const T* const from = in + offset_of(first_matrix, args.batch);
    const uint32_t end = matrices > 1 ? size : rows * strip_columns;
#pragma unroll 4
    for (uint32_t k = threadIdx.x * N; k < end; k += kThreads * N) {
      if (k + N <= end) {
        copy_async<T, N>(strip + strip_position<T>(k, args), from + k);
      } else {
        for (uint32_t e = k; e < end; ++e) strip[strip_position<T>(e, args)] = from[e];
      }
    }
  } else {
#pragma unroll 4
    for (uint32_t k = threadIdx.x * N; k < size; k += kThreads * N) {
      uint32_t matrix = k;
      const uint32_t j = args.strip_columns.divmod(matrix), i = args.strip_rows.divmod(matrix);
      if (i < rows && j < columns) {
        copy_async<T, N>(
            strip + strip_position<T>(k, args),
            in + offset_of(first_matrix + matrix, args.batch) + i * args.row_stride + j);
      }
    }
  }
  wait_for_copies();
  __syncthreads();
  // Not earlier: strips are few, so blocks of the next grid would crowd some SMs.
  launch_dependents();

  // Store the strip in the order of the output.
  T* const out =
      static_cast<T*>(args.out) + (int64_t{first_matrix} * args.columns + j0) * args.rows + i0;
  const uint32_t end = args.out_flat ? (matrices > 1 ? size : columns * strip_rows) : size;
#pragma unroll 2
  for (uint32_t k = threadIdx.x * M; k < end; k += kThreads * M) {
    uint32_t matrix = k;
    uint32_t i = args.strip_rows.divmod(matrix), j = args.strip_columns.divmod(matrix);
    int64_t to = k;
    bool valid = k + M <= end;
    if (!args.out_flat) {
      to = (matrix * args.columns + j) * args.rows + i;
      valid = i < rows && j < columns;
    }
    Vec<T, M> values;
    uint32_t element = (matrix * strip_rows + i) * strip_columns + j;
#pragma unroll
    for (int e = 0; e < M; ++e) {
      values.values[e] = strip[strip_position<T>(element, args)];
      // Step down the column, and from its end to the top of the next column or matrix.
      element += strip_columns;
      if (++i == strip_rows) {
        i = 0;
        element -= strip_rows * strip_columns - 1;
        if (++j == strip_columns) {
          j = 0;
          element += (strip_rows - 1) * strip_columns;
        }
      }
    }
    if (valid) {
      if constexpr (sizeof(values) >= 4) {
        store_whole(out + to, values);
      } else {
        out[to] = values.values[0];
      }
    } else if (args.out_flat) {
#pragma unroll
      for (int e = 0; e < M - 1; ++e) {
        if (k + e < end) out[k + e] = values.values[e];
      }
    }
  }
}

}  // namespace gpuopt::transpose
