// gpuopt::index_add and index_add_: schemas, and the CPU and Meta kernels.
#include <ATen/OpMathType.h>

#include "binding/index_errors.h"
#include "binding/writing.h"
#include "index_add/binding/index_add_check.h"

namespace gpuopt::index_add {
namespace {

TORCH_LIBRARY_FRAGMENT(gpuopt, m) { define<IndexAdd, Out<IndexAdd>, Inplace<IndexAdd>>(m); }

// ---------------------------------------------------------------- CPU: ATen's kernels

// The dtype of sums. ATen may round half types after each addition.
at::ScalarType sum_dtype(const Call& call) {
  const auto dtype = call.op.self.scalar_type();
  const bool half = dtype == at::kHalf || dtype == at::kBFloat16 || dtype == at::kComplexHalf;
  return half && call.mode != Mode::kFast ? at::toOpMathType(dtype) : dtype;
}

std::string wrong_entry(const Call& call) {
  return gpuopt::wrong_entry(call.op.self, call.op.dim, call.op.index);
}

Tensor sum_on_cpu(const Call& call) {
  const auto& op = call.op;
  const auto dtype = sum_dtype(call);
  const auto aten = [&] {
    return at::index_add(op.self.to(dtype), op.dim, op.index, op.source.to(dtype), op.alpha)
        .to(op.self.scalar_type());
  };
  return call_aten(call.name, op.self, aten, [&] { return wrong_entry(call); });
}

Tensor index_add_cpu(const IndexAdd& op) { return sum_on_cpu(check(op)); }

Tensor& index_add_inplace_cpu(const Inplace<IndexAdd>& given) {
  const Call call = check(given);
  const auto& op = call.op;
  Tensor& self = given.self;
  // ATen's in-place kernel adds all entries before the one that it refuses. So the index is checked
  // first.
  const bool in_place = sum_dtype(call) == self.scalar_type() && wrong_entry(call).empty();
  if (!in_place) return self.copy_(sum_on_cpu(call));
  call_aten(
      call.name, self, [&] { return self.index_add_(op.dim, op.index, op.source, op.alpha); },
      [&] { return wrong_entry(call); });
  return self;
}

// ATen's out= kernel is not used: it writes to out before it refuses an index.
TORCH_LIBRARY_IMPL(gpuopt, CPU, m) {
  impl<IndexAdd, index_add_cpu>(m);
  impl_out<IndexAdd, checked<Out<IndexAdd>>, index_add_cpu>(m);
  impl<Inplace<IndexAdd>, index_add_inplace_cpu>(m);
}

// ---------------------------------------------------------------- Meta: shapes, maybe symbolic

Tensor index_add_meta(const IndexAdd& op) {
  check(op);
  return at::empty_symint(op.self.sym_sizes(), op.self.options());
}

Tensor& index_add_inplace_meta(const Inplace<IndexAdd>& call) {
  check(call);
  return call.self;
}

TORCH_LIBRARY_IMPL(gpuopt, Meta, m) {
  impl<IndexAdd, index_add_meta>(m);
  impl_out<IndexAdd, checked<Out<IndexAdd>>, index_add_meta>(m);
  impl<Inplace<IndexAdd>, index_add_inplace_meta>(m);
}

}  // namespace
}  // namespace gpuopt::index_add
