// Launches a plan, for any reducer: launch_types() is the entry point.
#pragma once

#include <cuda_runtime_api.h>

#include <tuple>
#include <utility>

#include "reduce/device/reduce_reducers.cuh"
#include "reduce/paths/reduce_columns.cuh"
#include "reduce/paths/reduce_rows.cuh"
#include "reduce/paths/reduce_tile.cuh"
#include "reduce/reduce.h"

namespace gpuopt::reduce {

// The element type of a dtype. The list has the order of DType.
template <DType dtype>
using Element = std::tuple_element_t<
    static_cast<size_t>(dtype),
    std::tuple<Bool, uint8_t, int8_t, int16_t, int32_t, int64_t, __half, __nv_bfloat16, float,
               double, Complex<__half>, Complex<float>, Complex<double>>>;

template <typename Op, typename In, typename Start>
cudaError_t launch_rows_in_vecs(int64_t row, Start&& start) {
  constexpr int kValues = kVecSize<In>;
  if constexpr (kValues > 8) {
    if (row == 8) return start(rows_in_vecs_kernel<Op, In, 8>);
  }
  if constexpr (kValues > 4) {
    if (row == 4) return start(rows_in_vecs_kernel<Op, In, 4>);
  }
  if constexpr (kValues > 2) {
    if (row == 2) return start(rows_in_vecs_kernel<Op, In, 2>);
  }
  return start(rows_in_vecs_kernel<Op, In, 1>);
}

// Starts a kernel that reads vectors.
template <typename Op, typename In, typename Mid, typename Start>
cudaError_t launch_vecs(const Launch& launch, int64_t row, Start&& start) {
  constexpr int kValues = kVecSize<In>;
  const bool one_row = launch.one_row;
  if (launch.path == Path::kShortRows) return start(short_rows_kernel<Op, In>);
  if (launch.path == Path::kRowsInVecs) return launch_rows_in_vecs<Op, In>(row, start);
  if (launch.path == Path::kTile) return start(tile_kernel<Op, In>);
  if (launch.path == Path::kRows && launch.unaligned) {
    return one_row ? start(rows_kernel<Op, In, Mid, kValues, true, true>)
                   : start(rows_kernel<Op, In, Mid, kValues, true, false>);
  }
  if (launch.path == Path::kRows) {
    return one_row ? start(rows_kernel<Op, In, Mid, kValues, false, true>)
                   : start(rows_kernel<Op, In, Mid, kValues, false, false>);
  }
  if constexpr (kValues <= kShiftedValues) {
    if (launch.shifted) return start(columns_kernel<Op, In, Mid, kValues, Read::kShifted, true>);
  }
  if (launch.unaligned) {
    return one_row ? start(columns_kernel<Op, In, Mid, kValues, Read::kUnaligned, true>)
                   : start(columns_kernel<Op, In, Mid, kValues, Read::kUnaligned, false>);
  }
  return one_row ? start(columns_kernel<Op, In, Mid, kValues, Read::kAligned, true>)
                 : start(columns_kernel<Op, In, Mid, kValues, Read::kAligned, false>);
}

// Launches a kernel for values that are stored as In (or AnyType). Each value is converted to Mid
// first.
template <typename In, typename Mid, typename Op>
cudaError_t launch_one(const Op& op, const Launch& launch, void* workspace, cudaStream_t stream) {
  constexpr bool kNative = !std::is_same_v<In, AnyType>;
  if constexpr (kNative) {
    if (launch.path == Path::kLine) {
      LineArgs args = std::get<LineArgs>(launch.args);
      if (args.to_workspace) {
        args.to =
            static_cast<typename Op::Value*>(workspace) + int64_t{launch.first_slot} * args.outputs;
      }
      return launch_kernel(line_kernel<Op, In>, launch.shape, stream, op, args);
    }
  }
  Args args = std::get<Args>(launch.args);
  if (launch.to_workspace) args.workspace = workspace;
  args.first_slot = launch.first_slot;
  const auto start = [&](auto kernel) {
    return launch_kernel(kernel, launch.shape, stream, op, args);
  };
  if (launch.path == Path::kFinish) {
    return launch_kernel(finish_kernel<Op>, launch.shape, stream, op, args, launch.slots);
  }
  if constexpr (kNative) {
    if (launch.spread) {
      constexpr int kColumns = spread_columns(sizeof(In));
      return launch.one_row ? start(columns_kernel<Op, In, Mid, kColumns, Read::kSpread, true>)
                            : start(columns_kernel<Op, In, Mid, kColumns, Read::kSpread, false>);
    }
    if (launch.reads_vecs()) return launch_vecs<Op, In, Mid>(launch, args.row_size, start);
    if (launch.one_row) {
      return launch.path == Path::kRows
                 ? start(rows_kernel<Op, In, Mid, 1, false, true>)
                 : start(columns_kernel<Op, In, Mid, 1, Read::kAligned, true>);
    }
  }
  return launch.path == Path::kRows ? start(rows_kernel<Op, In, Mid, 1, false, false>)
                                    : start(columns_kernel<Op, In, Mid, 1, Read::kAligned, false>);
}

template <Types types, typename MakeOp>
cudaError_t launch_as(const Plan& plan, MakeOp make_op, Workspace& memory, cudaStream_t stream) {
  using V = Element<accumulator_of(types.values)>;
  using In = std::conditional_t<types.native, Element<types.in>, AnyType>;
  using Mid = std::conditional_t<types.native, V, Element<types.values>>;
  void* workspace = plan.workspace_bytes > 0 ? memory.allocate(plan.workspace_bytes) : nullptr;
  for (const Launch& launch : plan.launches) {
    const cudaError_t error = launch_one<In, Mid>(make_op(V{}), launch, workspace, stream);
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

// Launches a plan for one of the types of a list. make_op(V{}) is the reducer of values of type V.
template <const auto& list, typename MakeOp>
cudaError_t launch_types(const Plan& plan, MakeOp make_op, Workspace& memory, cudaStream_t stream) {
  cudaError_t error = cudaErrorInvalidValue;
  [&]<size_t... i>(std::index_sequence<i...>) {
    (void)((plan.types == list[i] &&
            (error = launch_as<list[i]>(plan, make_op, memory, stream), true)) ||
           ...);
  }(std::make_index_sequence<std::size(list)>());
  return error;
}

// A file for each of these compiles in parallel with the others.
cudaError_t launch_integer_sum(const Plan& plan, Workspace& memory, cudaStream_t stream);
cudaError_t launch_sum(const Plan& plan, Workspace& memory, cudaStream_t stream);
cudaError_t launch_max(const Plan& plan, Workspace& memory, cudaStream_t stream);
cudaError_t launch_min(const Plan& plan, Workspace& memory, cudaStream_t stream);

}  // namespace gpuopt::reduce
