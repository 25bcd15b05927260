// Plan -> kernel instantiation -> launch.
#include <algorithm>

#include "transpose/transpose.h"
#include "transpose/transpose_kernel.cuh"

namespace gpuopt::transpose {
namespace {

FastDiv divide_by(int64_t n) { return FastDiv(static_cast<uint32_t>(n)); }

template <typename T>
cudaError_t launch(const Problem& problem, const Plan& plan, cudaStream_t stream) {
  Args args{};
  args.in = problem.in;
  args.out = problem.out;
  args.rows = problem.rows;
  args.columns = problem.columns;
  args.row_stride = problem.row_stride;
  int64_t last = (problem.rows - 1) * problem.row_stride + problem.columns - 1;
  args.batch_dims = problem.batch_dims;
  for (int d = 0; d < problem.batch_dims; ++d) {
    args.batch_sizes[d] = divide_by(problem.batch_sizes[d]);
    args.batch_strides[d] = problem.batch_strides[d];
    last += (problem.batch_sizes[d] - 1) * problem.batch_strides[d];
  }
  args.in_end = static_cast<const T*>(problem.in) + last + 1;
  const int64_t width = std::min<int64_t>(kGroupWidth, plan.column_tiles);
  const int64_t last_group = (plan.column_tiles - 1) / width;
  args.tiles = divide_by(plan.row_tiles * plan.column_tiles);
  args.group = divide_by(plan.row_tiles * width);
  args.group_width = divide_by(width);
  args.last_width = divide_by(plan.column_tiles - last_group * width);
  args.last_group = static_cast<uint32_t>(last_group);
  const auto blocks = static_cast<unsigned>(plan.blocks);
  if (plan.aligned) {
    tiles_kernel<T, true><<<blocks, kThreads, 0, stream>>>(args);
  } else {
    tiles_kernel<T, false><<<blocks, kThreads, 0, stream>>>(args);
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
    default:
      return cudaErrorInvalidValue;
  }
}

}  // namespace gpuopt::transpose
