// The schemas, CPU kernels and Meta kernels of gpuopt::reduce_sum, reduce_mean, reduce_max and
// reduce_min.
#include "binding/aten.h"
#include "binding/writing.h"
#include "reduce/binding/reduce_check.h"

namespace gpuopt::reduce {
namespace {

using at::ScalarType;
using at::Tensor;

template <typename... Ops>
void define_all(torch::Library& m) {
  define<Ops..., Out<Ops>...>(m);
}

TORCH_LIBRARY_FRAGMENT(gpuopt, m) { define_all<ReduceSum, ReduceMean, ReduceMax, ReduceMin>(m); }

// ---------------------------------------------------------------- CPU: ATen's kernels

// All dimensions as an empty list. ATen's sum without a list makes a full one, which is limited to
// 64 dimensions.
at::IntArrayRef listed(at::OptionalIntArrayRef dim) { return dim.value_or(at::IntArrayRef{}); }

Tensor by_aten(const ReduceSum& op, ScalarType dtype) {
  return at::sum(op.self, listed(op.dim), op.keepdim, dtype);
}
Tensor by_aten(const ReduceMean& op, ScalarType dtype) {
  return at::mean(op.self, listed(op.dim), op.keepdim, dtype);
}
Tensor by_aten(const ReduceMax& op, ScalarType) {
  return at::amax(op.self, listed(op.dim), op.keepdim);
}
Tensor by_aten(const ReduceMin& op, ScalarType) {
  return at::amin(op.self, listed(op.dim), op.keepdim);
}

template <typename Op>
Tensor reduce_cpu(const Op& op) {
  const ScalarType dtype = check(op).dtype;
  return call_aten(name_of<Op>(), dtype, " to reduce in", [&] { return by_aten(op, dtype); });
}

// ATen's out= kernels would resize out before they refuse a dtype.
template <typename... Ops>
void impl_cpu(torch::Library& m) {
  (impl<Ops, reduce_cpu<Ops>>(m), ...);
  (impl_out<Ops, checked<Ops>, reduce_cpu<Ops>>(m), ...);
}

TORCH_LIBRARY_IMPL(gpuopt, CPU, m) { impl_cpu<ReduceSum, ReduceMean, ReduceMax, ReduceMin>(m); }

// ---------------------------------------------------------------- Meta: shapes, possibly symbolic

template <typename Op>
Tensor reduce_meta(const Op& op) {
  const SymReduction reduction = check<c10::SymInt>(op);
  return at::empty_symint(reduction.shape, op.self.options().dtype(reduction.dtype));
}

template <typename... Ops>
void impl_meta(torch::Library& m) {
  (impl<Ops, reduce_meta<Ops>>(m), ...);
  (impl_out<Ops, checked<Ops>, reduce_meta<Ops>>(m), ...);
}

TORCH_LIBRARY_IMPL(gpuopt, Meta, m) { impl_meta<ReduceSum, ReduceMean, ReduceMax, ReduceMin>(m); }

}  // namespace
}  // namespace gpuopt::reduce
