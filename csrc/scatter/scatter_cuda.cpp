// The CUDA kernels of reductions at an index: one launch for few entries; else additions, or the
// kernels of rows after a sort.
#include <ATen/ATen.h>
#include <ATen/Context.h>

#include <vector>

#include "binding/cuda_launch.h"
#include "binding/plain.h"
#include "binding/unfilled.h"
#include "index_add/binding/index_add_ops.h"
#include "rows/binding/rows_launch.h"
#include "scatter/scatter.h"
#include "scatter/scatter_check.h"
#include "scatter/scatter_grouped.h"

namespace gpuopt::scatter {
namespace {

// Whether sums may be added in any order.
bool may_add() { return !at::globalContext().deterministicAlgorithms(); }

// Slices as kernels read them: [batches][entries][features], with the features side by side.
struct Slices {
  Tensor tensor;
  int64_t batches = 1, features = 1, entry_stride, batch_stride = 0;

  Slices(const Tensor& src, int64_t dim) : tensor(src) {
    bool is_dense = true;
    for (int64_t d = src.dim() - 1; d > dim; --d) {
      is_dense = is_dense && (src.size(d) == 1 || src.stride(d) == features);
      features *= src.size(d);
    }
    for (int64_t d = dim - 1; d >= 0; --d) {
      if (src.size(d) == 1) continue;
      if (batches == 1) batch_stride = src.stride(d);
      is_dense = is_dense && src.stride(d) == batch_stride * batches;
      batches *= src.size(d);
    }
    entry_stride = src.stride(dim);
    if (is_dense) return;
    tensor = src.contiguous();
    entry_stride = features;
    batch_stride = src.size(dim) * features;
  }
};

Tensor empty_bins(const Scatter& op, int64_t dim, at::ScalarType dtype) {
  at::DimVector sizes(op.src.sizes());
  sizes[dim] = op.bins.expect_int();
  return unfilled(sizes, op.src.options().dtype(dtype));
}

std::optional<Plan> small_plan(const char* name, const Scatter& op, const Call& call,
                               const Slices& slices, bool is_added, const Tensor& out,
                               const Tensor& arg) {
  if (call.reduce == rows::Reduce::kProd) return std::nullopt;
  Problem problem;
  problem.src = slices.tensor.const_data_ptr();
  problem.index = {op.index.const_data_ptr(), op.index.scalar_type() == at::kLong,
                   op.index.stride(0), op.bins.expect_int()};
  problem.out = out.mutable_data_ptr();
  if (arg.defined()) problem.arg = arg.mutable_data_ptr<int64_t>();
  static_assert(static_cast<int>(Reduce::kMin) == static_cast<int>(rows::Reduce::kMin));
  problem.reduce = static_cast<Reduce>(call.reduce);
  problem.dtype = to_dtype(name, op.src.scalar_type());
  problem.batches = slices.batches;
  problem.entries = op.index.numel();
  problem.features = slices.features;
  problem.entry_stride = slices.entry_stride;
  problem.batch_stride = slices.batch_stride;
  problem.in_order = !may_add();
  const Device device = current_device();
  return is_small(problem, is_added, device) ? std::optional(plan(problem, device)) : std::nullopt;
}

// The entries are sorted by bin. Each result is then written once, in the order of its entries.
void reduce_sorted(const char* name, const Scatter& op, const Call& checked, const Slices& slices,
                   const Tensor& out, const Tensor& arg) {
  const auto [ptr, perm] = call(segment::GroupBy{op.index, op.bins, std::nullopt});
  const Tensor places = arg.defined() ? unfilled(arg.sizes(), ptr.options()) : Tensor();
  rows::ReduceProblem problem;
  problem.matrix = {ptr.const_data_ptr(),  perm.const_data_ptr(),
                    perm.const_data_ptr(), ptr.scalar_type() == at::kLong,
                    op.bins.expect_int(),  op.index.numel(),
                    op.index.numel()};
  problem.reduce = checked.reduce;
  problem.dtype = to_dtype(name, op.src.scalar_type());
  problem.batches = slices.batches;
  problem.features = slices.features;
  problem.dense = {const_cast<void*>(slices.tensor.const_data_ptr()), slices.entry_stride,
                   slices.batch_stride};
  problem.out = {out.mutable_data_ptr(), slices.features, op.bins.expect_int() * slices.features};
  problem.empty = segment::empty_of(checked.reduce, std::nullopt);
  if (arg.defined()) problem.arg = places.mutable_data_ptr();
  rows::run(name, problem);
  if (arg.defined()) arg.copy_(places);
}

// Adds in any order. A mean in a half type is divided before it is rounded.
void add_up(const char* name, const Scatter& op, const Call& checked,
            index_add::Additions additions, const Tensor& out) {
  const bool is_wide = additions == index_add::Additions::kInFloat32;
  Tensor sums = is_wide ? at::zeros(out.sizes(), out.options().dtype(at::kFloat)) : out.zero_();
  if (is_wide) {
    index_add::add_to_float32(name, sums, checked.dim, op.index, op.src);
  } else {
    call(Inplace<IndexAdd>{{sums, checked.dim, op.index, op.src, 1, "accurate"}, sums});
  }
  if (checked.reduce == rows::Reduce::kMean) {
    Tensor counts = at::zeros({op.bins.expect_int()}, op.index.options().dtype(at::kLong));
    const Tensor ones = at::ones({1}, counts.options()).expand({op.index.numel()});
    call(Inplace<IndexAdd>{{counts, 0, op.index, ones, 1, "fast"}, counts});
    std::vector<int64_t> shape(static_cast<size_t>(out.dim() - checked.dim), 1);
    shape[0] = -1;
    sums.div_(counts.clamp_min_(1).view(shape));
  }
  if (is_wide) out.copy_(sums);
}

void reduce_to(const char* name, const Scatter& op, const Call& call, const Tensor& out,
               const Tensor& arg) {
  if (out.numel() == 0) return;
  if (op.index.numel() == 0) {
    out.fill_(segment::empty_of(call.reduce, std::nullopt));
    if (arg.defined()) arg.fill_(-1);
    return;
  }
  using index_add::Additions;
  const Slices slices(op.src, call.dim);
  const bool is_sum = call.reduce == rows::Reduce::kSum,
             is_mean = call.reduce == rows::Reduce::kMean;
  const Additions additions = may_add() && (is_sum || is_mean)
                                  ? index_add::additions(name, out, call.dim, op.index, op.src)
                                  : Additions::kSorted;
  // A mean in a half type is divided before it is rounded.
  const bool is_added = additions == Additions::kInFloat32 ||
                        (additions == Additions::kDirect && (is_sum || op.src.element_size() > 2));
  // A mean takes four more launches than a sum.
  if (const auto plan = small_plan(name, op, call, slices, is_added && is_sum, out, arg)) {
    check_launch(name, launch(*plan, c10::cuda::getCurrentCUDAStream()));
    return;
  }
  // Where few bins have entries, the kernels of rows write all bins at once.
  const bool is_sparse = op.bins.expect_int() > op.index.numel();
  if (is_added || (is_sum && may_add() && !is_sparse)) {
    add_up(name, op, call, additions, out);
  } else {
    reduce_sorted(name, op, call, slices, out, arg);
  }
}

void check_cuda(const char* name, const Scatter& op) {
  check_memory(name, {{"src", op.src}, {"index", op.index}});
}

Tensor on_cuda(const Scatter& op) {
  const char* name = name_of<Scatter>();
  const Call call = check(op);
  check_cuda(name, op);
  if (!segment::is_real_float(op.src)) return by_groups(op, call.dim);
  const c10::cuda::CUDAGuard guard(op.src.device());
  const Tensor out = empty_bins(op, call.dim, op.src.scalar_type());
  reduce_to(name, op, call, out, Tensor());
  return out;
}

TensorPair on_cuda(const ScatterArg& op) {
  const char* name = name_of<ScatterArg>();
  const Call call = check(op);
  check_cuda(name, op.values());
  if (!segment::is_real_float(op.src)) return by_groups(op, call.dim);
  const c10::cuda::CUDAGuard guard(op.src.device());
  const Tensor out = empty_bins(op.values(), call.dim, op.src.scalar_type());
  const Tensor arg = empty_bins(op.values(), call.dim, at::kLong);
  reduce_to(name, op.values(), call, out, arg);
  return {out, arg};
}

TORCH_LIBRARY_IMPL(gpuopt, CUDA, m) {
  Ops::for_each([&]<typename Op>() { impl<Op, KernelOf<Op>(on_cuda)>(m); });
}

}  // namespace
}  // namespace gpuopt::scatter
