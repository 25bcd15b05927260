// The schemas, CPU kernels and Meta kernels of gpuopt::reduce_sum, reduce_mean, reduce_max and
// reduce_min.
#include "binding/aten.h"
#include "binding/writing.h"
#include "reduce/binding/reduce_check.h"

namespace gpuopt::reduce {
namespace {

using at::ScalarType;
using at::Tensor;

TORCH_LIBRARY_FRAGMENT(gpuopt, m) {
  Ops::for_each([&]<typename Op>() { define<Op, Out<Op>>(m); });
}

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
TORCH_LIBRARY_IMPL(gpuopt, CPU, m) {
  Ops::for_each([&]<typename Op>() {
    impl<Op, reduce_cpu<Op>>(m);
    impl_out<Op, checked<Op>, reduce_cpu<Op>>(m);
  });
}

// ---------------------------------------------------------------- Meta: shapes, possibly symbolic

template <typename Op>
Tensor reduce_meta(const Op& op) {
  const SymReduction reduction = check<c10::SymInt>(op);
  return at::empty_symint(reduction.shape, op.self.options().dtype(reduction.dtype));
}

TORCH_LIBRARY_IMPL(gpuopt, Meta, m) {
  Ops::for_each([&]<typename Op>() {
    impl<Op, reduce_meta<Op>>(m);
    impl_out<Op, checked<Op>, reduce_meta<Op>>(m);
  });
}

}  // namespace
}  // namespace gpuopt::reduce
