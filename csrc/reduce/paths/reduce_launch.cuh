// Launches what a Plan describes, for any reducer: run() is the entry point.
#pragma once

#include <cuda_runtime_api.h>

#include "reduce/paths/reduce_columns.cuh"
#include "reduce/paths/reduce_rows.cuh"
#include "reduce/reduce.h"

namespace gpuopt::reduce {

// Clamps to 31 bits. Kernels never divide by a number that is clamped. Such numbers are sizes of
// the innermost reduced dimension, and sizes of problems that are launched in parts.
inline FastDiv divide_by(int64_t n) {
  return FastDiv(static_cast<uint32_t>(std::min(n, kMaxIndex32)));
}

inline KernelDims kernel_dims(const Dim* dims, int count) {
  KernelDims out;
  if (count > kMaxKernelDims) return out;  // the problem is launched in parts, not as a whole
  out.count = count;
  for (int d = 0; d < count; ++d) {
    out.sizes[d] = divide_by(dims[d].size);
    out.in_strides[d] = dims[d].in_stride;
    out.out_strides[d] = dims[d].out_stride;
  }
  return out;
}

inline Args make_args(const Problem& problem, const Plan& plan, int values) {
  Args args;
  args.in = problem.in;
  int64_t reach = 1;
  for (int d = 0; d < problem.num_dims; ++d) {
    reach += (problem.dims[d].size - 1) * problem.dims[d].in_stride;
  }
  args.in_end = static_cast<const char*>(problem.in) +
                reach * static_cast<int64_t>(size_of(problem.in_dtype));
  args.out = problem.out;
  args.in_dtype = problem.in_dtype;
  args.out_dtype = problem.dtype;
  args.kept = kernel_dims(plan.kept, plan.num_kept);
  args.reduced = kernel_dims(plan.reduced, plan.num_reduced);
  args.outputs = static_cast<uint32_t>(plan.outputs);
  args.outer_units = static_cast<uint32_t>(plan.outer_units);
  args.inner_units = divide_by(plan.inner_units);  // used only if there are outer units
  args.units = plan.units();
  args.splits = divide_by(plan.splits);
  args.x = divide_by(plan.x);
  args.y = divide_by(plan.y);
  args.z = static_cast<uint32_t>(plan.z);
  args.linear_out = plan.linear_out;
  args.packed_out = plan.packed_out;
  args.read_once = plan.read_once;
  args.row_size = plan.reduced[0].size;
  args.rows_per_lane = static_cast<uint32_t>(plan.rows_per_lane);
  args.inner_stride = plan.reduced[0].in_stride;
  if (plan.path == Path::kColumns) {
    args.column_tiles = divide_by(plan.column_tiles);
    args.column_vecs = static_cast<uint32_t>(plan.column_vecs);
    args.columns = static_cast<uint32_t>(plan.kept[0].size);
    args.outer_outputs = args.outputs / args.columns;
    args.fold = static_cast<uint32_t>(plan.fold);
    args.inner_stride *= plan.fold;
  } else if (plan.vecs) {
    args.inner_stride = values;
  }
  return args;
}

inline LineArgs line_args(const Args& all, const Plan& plan, size_t accumulator_bytes) {
  LineArgs args;
  args.in = all.in;
  args.to_workspace = all.workspace != nullptr;
  args.to = args.to_workspace ? static_cast<char*>(all.workspace) +
                                    accumulator_bytes * all.first_slot * all.outputs
                              : all.out;
  args.row_stride = plan.num_kept > 0 ? plan.kept[0].in_stride : 0;
  args.vecs = plan.inner_units;
  args.splits = all.splits;
  args.outputs = all.outputs;
  args.out_dtype = all.out_dtype;
  args.read_once = all.read_once;
  return args;
}

template <typename Op, typename In, typename Start>
cudaError_t launch_rows_in_vecs(const Plan& plan, Start&& start) {
  constexpr int kValues = kVecSize<In>;
  if constexpr (kValues > 8) {
    if (plan.reduced[0].size == 8) return start(rows_in_vecs_kernel<Op, In, 8>);
  }
  if constexpr (kValues > 4) {
    if (plan.reduced[0].size == 4) return start(rows_in_vecs_kernel<Op, In, 4>);
  }
  if constexpr (kValues > 2) {
    if (plan.reduced[0].size == 2) return start(rows_in_vecs_kernel<Op, In, 2>);
  }
  return start(rows_in_vecs_kernel<Op, In, 1>);
}

template <typename Op, typename In, typename Mid>
cudaError_t launch_main(const Op& op, const Problem& problem, const Plan& plan, void* workspace,
                        uint32_t first_slot, cudaStream_t stream) {
  constexpr bool kVecs = !std::is_same_v<In, AnyType>;
  constexpr int kValues = [] {
    if constexpr (kVecs) {
      return kVecSize<In>;
    } else {
      return 1;
    }
  }();
  Args args = make_args(problem, plan, kValues);
  args.workspace = workspace;
  args.first_slot = first_slot;
  LaunchShape shape;
  shape.blocks = static_cast<unsigned>(plan.blocks());
  shape.threads = static_cast<unsigned>(plan.threads());
  shape.shared_bytes = plan.shared_bytes;
  shape.use_pdl = true;
  const auto start = [&](auto kernel) { return launch_kernel(kernel, shape, stream, op, args); };
  if constexpr (kValues > 1) {
    const bool one_row = plan.outer_units == 1;
    if (plan.path == Path::kLine) {
      return launch_kernel(line_kernel<Op, In>, shape, stream, op,
                           line_args(args, plan, sizeof(typename Op::Value)));
    }
    if (plan.path == Path::kShortRows) return start(short_rows_kernel<Op, In>);
    if (plan.path == Path::kRowsInVecs) return launch_rows_in_vecs<Op, In>(plan, start);
    if (plan.path == Path::kTile) return start(tile_kernel<Op, In>);
    if (plan.path == Path::kRows && plan.vecs && plan.unaligned) {
      return one_row ? start(rows_kernel<Op, In, Mid, kValues, true, true>)
                     : start(rows_kernel<Op, In, Mid, kValues, true, false>);
    }
    if (plan.path == Path::kRows && plan.vecs) {
      return one_row ? start(rows_kernel<Op, In, Mid, kValues, false, true>)
                     : start(rows_kernel<Op, In, Mid, kValues, false, false>);
    }
    if (plan.vecs && plan.unaligned) {
      return one_row ? start(columns_kernel<Op, In, Mid, kValues, Read::kUnaligned, true>)
                     : start(columns_kernel<Op, In, Mid, kValues, Read::kUnaligned, false>);
    }
    if (plan.vecs) {
      return one_row ? start(columns_kernel<Op, In, Mid, kValues, Read::kAligned, true>)
                     : start(columns_kernel<Op, In, Mid, kValues, Read::kAligned, false>);
    }
  }
  return plan.path == Path::kRows ? start(rows_kernel<Op, In, Mid, 1, false, false>)
                                  : start(columns_kernel<Op, In, Mid, 1, Read::kAligned, false>);
}

template <typename Op>
cudaError_t launch_finish(const Op& op, const Problem& problem, const Plan& plan, void* workspace,
                          uint32_t slots, cudaStream_t stream) {
  Args args = make_args(problem, plan, 1);
  args.workspace = workspace;
  // A block has x outputs, a power of two: 8, a sector of f32, or more if there are few slots. The
  // threads of an output are x apart, so that those within a warp combine by shuffles.
  const int64_t sector = std::min<int64_t>(pow2_ceil(plan.outputs), 8);
  const int64_t y = std::clamp(pow2_ceil(slots), kWarp / sector, kFinishThreads / sector);
  const int64_t wide = std::min<int64_t>(kWarp, kFinishThreads / (2 * y));
  args.y = divide_by(y);
  args.x = divide_by(plan.outputs >= kWarp ? std::max(sector, wide) : sector);
  LaunchShape shape;
  shape.blocks = static_cast<unsigned>(ceil_div<int64_t>(plan.outputs, args.x.divisor));
  shape.threads = args.x.divisor * args.y.divisor;
  shape.shared_bytes = shape.threads * sizeof(typename Op::Value);
  shape.use_pdl = true;
  return launch_kernel(finish_kernel<Op>, shape, stream, op, args, slots);
}

// Splits a problem whose outputs have too many units for one launch, and calls f(part, plan) for
// each part in order.
template <typename F>
cudaError_t for_each_part(const Problem& problem, const Kernels& kernels, const Device& device,
                          F&& f) {
  const Plan plan = make_plan(problem, kernels, device);
  if (!has_too_many_units(plan)) return f(problem, plan);
  Problem first, second;
  halve(problem, /*reduced=*/true, first, second);
  const cudaError_t error = for_each_part(first, kernels, device, f);
  return error != cudaSuccess ? error : for_each_part(second, kernels, device, f);
}

// Reduces values that are stored as In (or AnyType). Each value is converted to Mid first.
template <typename In, typename Mid, typename Op>
cudaError_t run(const Op& op, const Problem& problem, const Device& device, Workspace& memory,
                cudaStream_t stream) {
  constexpr Kernels kKernels{!std::is_same_v<In, AnyType>, sizeof(typename Op::Value),
                             kUnrollOf<In>};
  const Plan plan = make_plan(problem, kKernels, device);
  if (has_too_many_outputs(plan)) {
    Problem first, second;
    halve(problem, /*reduced=*/false, first, second);
    const cudaError_t error = run<In, Mid>(op, first, device, memory, stream);
    return error != cudaSuccess ? error : run<In, Mid>(op, second, device, memory, stream);
  }
  const bool parts = has_too_many_units(plan);
  if (!parts && plan.splits == 1) {
    return launch_main<Op, In, Mid>(op, problem, plan, nullptr, 0, stream);
  }
  uint32_t slots = 0;
  const auto count = [&](const Problem&, const Plan& part) {
    slots += part.splits;
    return cudaSuccess;
  };
  for_each_part(problem, kKernels, device, count);
  void* workspace = memory.allocate(static_cast<size_t>(slots) * static_cast<size_t>(plan.outputs) *
                                    kKernels.accumulator_bytes);
  uint32_t slot = 0;
  const auto start = [&](const Problem& own, const Plan& part) {
    const cudaError_t error = launch_main<Op, In, Mid>(op, own, part, workspace, slot, stream);
    slot += part.splits;
    return error;
  };
  const cudaError_t error = for_each_part(problem, kKernels, device, start);
  if (error != cudaSuccess) return error;
  return launch_finish(op, problem, plan, workspace, slots, stream);
}

}  // namespace gpuopt::reduce
