// The schemas, CPU kernels and Meta kernels of gpuopt::cumsum and cumsum_.
#include "binding/aten.h"
#include "binding/unfilled.h"
#include "binding/writing.h"
#include "scan/binding/scan_check.h"

namespace gpuopt::scan {
namespace {

using at::Tensor;

TORCH_LIBRARY_FRAGMENT(gpuopt, m) { define<Cumsum, Out<Cumsum>, Inplace<Cumsum>>(m); }

// ---------------------------------------------------------------- CPU: ATen's kernels

// A copy. ATen's flip is limited to 64 dimensions.
Tensor reversed(const Tensor& tensor, int64_t dim) {
  if (tensor.dim() <= 64) return tensor.flip(dim).contiguous();
  return tensor.index_select(dim, at::arange(tensor.size(dim) - 1, -1, -1, at::kLong));
}

// Computes a checked call. `name` is the name of the operator in messages.
Tensor scan_cpu(const char* name, const Cumsum& op) {
  const auto& [self, dim, dtype, reverse, exclusive] = op;
  const auto by_aten = [&](const Tensor& values) {
    return call_aten(name, *op.dtype, " to sum in",
                     [&] { return at::cumsum(values, op.dim, op.dtype); });
  };
  const Tensor values = reverse ? reversed(self, dim) : self;
  Tensor result;
  if (!exclusive) {
    result = by_aten(values);
  } else {
    result = unfilled(self.sizes(), self.options().dtype(*dtype));
    if (self.dim() == 0 || self.size(dim) <= 1) {
      result.zero_();
    } else {
      const int64_t before = self.size(dim) - 1;
      result.narrow(dim, 0, 1).zero_();
      result.narrow(dim, 1, before).copy_(by_aten(values.narrow(dim, 0, before)));
    }
  }
  return reverse ? reversed(result, dim) : result;
}

Tensor cumsum_cpu(const Cumsum& op) { return scan_cpu(name_of<Cumsum>(), checked(op)); }

Tensor& cumsum_inplace_cpu(const Inplace<Cumsum>& call) {
  const char* name = name_of<Inplace<Cumsum>>();
  const Cumsum op = checked_inplace(call);
  check_writable(name, {"input", call.self}, {});
  return call.self.copy_(scan_cpu(name, op));
}

TORCH_LIBRARY_IMPL(gpuopt, CPU, m) {
  impl<Cumsum, cumsum_cpu>(m);
  impl_out<Cumsum, checked_out, cumsum_cpu>(m);
  impl<Inplace<Cumsum>, cumsum_inplace_cpu>(m);
}

// ---------------------------------------------------------------- Meta: shapes, possibly symbolic

Tensor cumsum_meta(const Cumsum& op) {
  return at::empty_symint(op.self.sym_sizes(), op.self.options().dtype(*checked(op).dtype));
}

Tensor& cumsum_inplace_meta(const Inplace<Cumsum>& call) {
  checked_inplace(call);
  check_writable(name_of<Inplace<Cumsum>>(), {"input", call.self}, {});
  return call.self;
}

TORCH_LIBRARY_IMPL(gpuopt, Meta, m) {
  impl<Cumsum, cumsum_meta>(m);
  impl_out<Cumsum, checked_out, cumsum_meta>(m);
  impl<Inplace<Cumsum>, cumsum_inplace_meta>(m);
}

}  // namespace
}  // namespace gpuopt::scan
