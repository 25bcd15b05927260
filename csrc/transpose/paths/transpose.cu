// Launches the kernel that a plan names.
#include "transpose/paths/transpose_strips.cuh"
#include "transpose/paths/transpose_tiles.cuh"
#include "transpose/transpose.h"

namespace gpuopt::transpose {
namespace {

Args make_args(const Problem& problem, const Plan& plan) {
  Args args{};
  args.in = problem.in;
  args.out = problem.out;
  args.rows = problem.rows;
  args.columns = problem.columns;
  args.row_stride = problem.row_stride;
  int64_t last = (problem.rows - 1) * problem.row_stride + problem.columns - 1;
  args.batch.dims = problem.batch_dims;
  for (int d = 0; d < problem.batch_dims; ++d) {
    args.batch.sizes[d] = divide_by(problem.batch_sizes[d]);
    args.batch.strides[d] = problem.batch_strides[d];
    last += (problem.batch_sizes[d] - 1) * problem.batch_strides[d];
  }
  args.in_end = static_cast<const char*>(problem.in) + (last + 1) * problem.item;
  args.row_tiles = divide_by(plan.row_tiles);
  args.column_tiles = divide_by(plan.column_tiles);
  args.matrices = static_cast<uint32_t>(plan.matrices);
  if (plan.path == Path::kStrips) {
    args.strip_rows = divide_by(plan.strip_rows);
    args.strip_columns = divide_by(plan.strip_columns);
    args.strip_matrices = static_cast<uint32_t>(plan.strip_matrices);
    args.room_shift = static_cast<uint32_t>(plan.room_shift);
    args.in_flat = plan.in_flat;
    args.out_flat = plan.out_flat;
  }
  return args;
}

// Elements in a 4-byte word; 1 for larger elements.
template <typename T>
constexpr int kWord = sizeof(T) < 4 ? 4 / sizeof(T) : 1;

template <typename T, int N>
void launch_strips(const Args& args, const Plan& plan, cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>(plan.blocks);
  if (plan.out_bytes == kAccessBytes) {
    strips_kernel<T, N, kVecSize<T>><<<blocks, kThreads, 0, stream>>>(args);
  } else if (sizeof(T) < 4 && plan.out_bytes == 4) {
    strips_kernel<T, N, kWord<T>><<<blocks, kThreads, 0, stream>>>(args);
  } else {
    strips_kernel<T, N, 1><<<blocks, kThreads, 0, stream>>>(args);
  }
}

template <typename T>
cudaError_t launch(const Problem& problem, const Plan& plan, cudaStream_t stream) {
  const Args args = make_args(problem, plan);
  if (plan.path == Path::kStrips) {
    if (plan.in_bytes == kAccessBytes) {
      launch_strips<T, kVecSize<T>>(args, plan, stream);
    } else if (sizeof(T) < 4 && plan.in_bytes == 4) {
      launch_strips<T, kWord<T>>(args, plan, stream);
    } else {
      launch_strips<T, 1>(args, plan, stream);
    }
    return cudaGetLastError();
  }
  if constexpr (sizeof(T) <= 8) {
    const auto blocks = static_cast<unsigned>(plan.blocks);
    if (plan.aligned) {
      tiles_kernel<T, true><<<blocks, kThreads, 0, stream>>>(args);
    } else {
      tiles_kernel<T, false><<<blocks, kThreads, 0, stream>>>(args);
    }
  }
  return cudaGetLastError();
}

}  // namespace

cudaError_t transpose(const Problem& problem, const Plan& plan, cudaStream_t stream) {
  switch (problem.item) {
    case 1:
      return launch<uint8_t>(problem, plan, stream);
    case 2:
      return launch<uint16_t>(problem, plan, stream);
    case 4:
      return launch<uint32_t>(problem, plan, stream);
    case 8:
      return launch<uint64_t>(problem, plan, stream);
    case 16:
      return launch<uint4>(problem, plan, stream);
    default:
      return cudaErrorInvalidValue;
  }
}

}  // namespace gpuopt::transpose
