// The CUDA kernels of reductions of segments: a segment is a row of a matrix whose columns are the
// entries, so the calls go to the kernels of rows.
#include <ATen/ATen.h>

#include "binding/cuda_launch.h"
#include "binding/unfilled.h"
#include "rows/binding/rows_launch.h"
#include "segment/segment.h"
#include "segment/segment_check.h"

namespace gpuopt::segment {
namespace {

using at::ScalarType;

// Rows that kernels read: dense, or matrices of dense rows, in the second dimension.
struct Operand {
  Tensor tensor;
  rows::Rows rows;
  int64_t batches = 1, features = 1;

  explicit Operand(const Tensor& x, bool may_batch = false) : tensor(x) {
    int64_t last = x.dim() - 1;
    for (; last > 0 && (x.size(last) == 1 || x.stride(last) == features); --last) {
      features *= x.size(last);
    }
    // Matrices of rows of one element are columns, which should lie side by side.
    if (may_batch && last == 1 && (features > 1 || x.stride(0) == 1)) {
      batches = x.size(1);
      rows.batch = x.stride(1);
    } else if (last > 0) {
      tensor = x.contiguous();
      features = x.numel() / x.size(0);
    }
    rows.row = tensor.stride(0);
    rows.data = const_cast<void*>(tensor.const_data_ptr());  // kernels only read an operand
  }
};

// The offsets as the row pointers of a matrix.
struct Offsets {
  Tensor tensor;

  explicit Offsets(const Tensor& offsets) : tensor(offsets.contiguous()) {}

  rows::Matrix matrix(int64_t entries) const {
    rows::Matrix matrix;
    matrix.ptr = tensor.const_data_ptr();
    matrix.is_long = tensor.scalar_type() == at::kLong;
    matrix.rows = tensor.numel() - 1;
    matrix.columns = matrix.entries = entries;
    return matrix;
  }
};

Tensor rows_like(const Tensor& like, int64_t rows, ScalarType dtype) {
  at::DimVector sizes(like.sizes());
  sizes[0] = rows;
  return unfilled(sizes, like.options().dtype(dtype));
}

// ---------------------------------------------------------------- reductions

// The dtype in which kernels reduce: int32 and int64 are the only integers, and sums of a mean must
// not overflow.
ScalarType kernel_type(const Tensor& data, Reduce reduce) {
  const ScalarType dtype = data.scalar_type();
  if (is_real_float(data)) return dtype;
  return dtype == at::kInt && reduce != Reduce::kMean ? at::kInt : at::kLong;
}

// Returns the result, and writes entry numbers to `arg` if it is defined.
Tensor reduced(const char* op, const SegmentReduce& call, Reduce reduce, const Tensor& arg) {
  check_memory(op, {{"data", call.data}, {"offsets", call.offsets}});
  const c10::cuda::CUDAGuard guard(call.data.device());
  const ScalarType dtype = kernel_type(call.data, reduce);
  const int64_t segments = call.offsets.numel() - 1, entries = call.data.size(0);
  const double empty = empty_of(reduce, call.empty);
  const Tensor out = rows_like(call.data, segments, dtype);
  if (out.numel() == 0 || entries == 0) {
    if (arg.defined()) arg.fill_(-1);
    return out.fill_(empty).to(call.data.scalar_type());
  }
  const Operand data(call.data.to(dtype), /*may_batch=*/!arg.defined());
  const Offsets offsets(call.offsets);
  rows::ReduceProblem problem;
  problem.matrix = offsets.matrix(entries);
  problem.reduce = reduce;
  problem.dtype = to_dtype(op, dtype);
  problem.batches = data.batches;
  problem.features = data.features;
  problem.dense = data.rows;
  problem.out = {out.mutable_data_ptr(), out.stride(0), data.features};
  problem.empty = empty;
  if (arg.defined()) problem.arg = arg.mutable_data_ptr();
  rows::run(op, problem);
  return out.to(call.data.scalar_type());
}

Tensor on_cuda(const SegmentReduce& op) {
  return reduced(name_of<SegmentReduce>(), op, check(op), Tensor());
}

TensorPair on_cuda(const SegmentReduceArg& op) {
  const Reduce reduce = check(op);
  const c10::cuda::CUDAGuard guard(op.data.device());
  const Tensor arg = rows_like(op.data, op.offsets.numel() - 1, op.offsets.scalar_type());
  return {reduced(name_of<SegmentReduceArg>(), op.values(), reduce, arg), arg};
}

// ---------------------------------------------------------------- maps

// Launches a map of entries. `problem` lacks the matrix, features and the result.
Tensor mapped(const char* op, rows::MapProblem problem, const Offsets& offsets, const Tensor& out) {
  if (out.numel() == 0) return out;
  if (offsets.tensor.numel() == 1) return out.zero_();
  problem.matrix = offsets.matrix(out.size(0));
  problem.features = out.numel() / out.size(0);
  problem.out = out.mutable_data_ptr();
  rows::run(op, problem);
  return out;
}

Tensor rows_to_entries(const char* op, const SegmentExpand& call, const Tensor& arg) {
  check_memory(op, {{"rows", call.rows}, {"offsets", call.offsets}, {"arg", arg}});
  const c10::cuda::CUDAGuard guard(call.rows.device());
  const Tensor out = rows_like(call.rows, call.entries.expect_int(), call.rows.scalar_type());
  if (out.numel() == 0 || call.rows.numel() == 0) return out.zero_();
  const Operand rows(call.rows);
  const Tensor selected = arg.defined() ? arg.contiguous() : arg;
  rows::MapProblem problem;
  problem.map = arg.defined() ? rows::Map::kSelected : rows::Map::kCopy;
  problem.dtype = bits_of_size(op, static_cast<int64_t>(out.element_size()));
  problem.row = rows.rows;
  if (arg.defined()) problem.selected = selected.const_data_ptr();
  return mapped(op, problem, Offsets(call.offsets), out);
}

Tensor on_cuda(const SegmentExpand& op) {
  check(op);
  return rows_to_entries(name_of<SegmentExpand>(), op, Tensor());
}

Tensor on_cuda(const SegmentSelect& op) {
  check(op);
  return rows_to_entries(name_of<SegmentSelect>(), op.expand(), op.arg);
}

Tensor on_cuda(const SegmentSoftmax& op) {
  check(op);
  const char* name = name_of<SegmentSoftmax>();
  check_memory(name, {{"src", op.src}, {"offsets", op.offsets}});
  const c10::cuda::CUDAGuard guard(op.src.device());
  const Tensor x = op.src.contiguous();
  rows::MapProblem problem;
  problem.map = rows::Map::kSoftmax;
  problem.dtype = to_dtype(name, x.scalar_type());
  problem.x = x.const_data_ptr();
  return mapped(name, problem, Offsets(op.offsets), unfilled(x.sizes(), x.options()));
}

Tensor on_cuda(const SegmentSoftmaxBackward& op) {
  check(op);
  const char* name = name_of<SegmentSoftmaxBackward>();
  check_memory(name, {{"grad", op.grad}, {"result", op.result}, {"offsets", op.offsets}});
  const c10::cuda::CUDAGuard guard(op.result.device());
  const Tensor x = op.grad.to(op.result.scalar_type()).contiguous(), y = op.result.contiguous();
  rows::MapProblem problem;
  problem.map = rows::Map::kSoftmaxGradient;
  problem.dtype = to_dtype(name, y.scalar_type());
  problem.x = x.const_data_ptr();
  problem.y = y.const_data_ptr();
  return mapped(name, problem, Offsets(op.offsets), unfilled(y.sizes(), y.options()));
}

// ---------------------------------------------------------------- grouping

TensorPair on_cuda(const GroupBy& op) {
  const ScalarType dtype = check(op);
  const char* name = name_of<GroupBy>();
  check_memory(name, {{"index", op.index}});
  const c10::cuda::CUDAGuard guard(op.index.device());
  const int64_t bins = op.bins.expect_int(), entries = op.index.numel();
  const auto options = op.index.options().dtype(dtype);
  const Tensor ptr = unfilled({bins + 1}, options), perm = unfilled({entries}, options);
  if (entries == 0) return {ptr.zero_(), perm};
  Grouping grouping;
  grouping.index = {op.index.const_data_ptr(), op.index.scalar_type() == at::kLong,
                    op.index.stride(0), bins};
  grouping.entries = entries;
  grouping.ptr = ptr.mutable_data_ptr();
  grouping.perm = perm.mutable_data_ptr();
  grouping.long_result = dtype == at::kLong;
  if (!is_supported(grouping)) {  // more than 2^30 entries
    const auto [sorted, order] = op.index.sort(/*stable=*/true, 0, /*descending=*/false);
    return {at::searchsorted(sorted, at::arange(bins + 1, sorted.options())).to(dtype),
            order.to(dtype)};
  }
  TensorWorkspace workspace;
  check_launch(
      name, launch(plan(grouping, current_device()), workspace, c10::cuda::getCurrentCUDAStream()));
  return {ptr, perm};
}

TORCH_LIBRARY_IMPL(gpuopt, CUDA, m) {
  Ops::for_each([&]<typename Op>() { impl<Op, KernelOf<Op>(on_cuda)>(m); });
}

}  // namespace
}  // namespace gpuopt::segment
