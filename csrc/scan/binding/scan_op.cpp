// The schemas, CPU kernels and Meta kernels of gpuopt::cumsum and cumsum_.
#include <ATen/native/Resize.h>
#include <torch/library.h>

#include "binding/unfilled.h"
#include "scan/binding/scan_check.h"

TORCH_LIBRARY_FRAGMENT(gpuopt, m) {
  const std::vector<at::Tag> tags{at::Tag::pt2_compliant_tag};
  m.def(
      "cumsum(Tensor self, int dim, *, ScalarType? dtype=None, bool reverse=False, "
      "bool exclusive=False) -> Tensor",
      tags);
  m.def(
      "cumsum.out(Tensor self, int dim, *, ScalarType? dtype=None, bool reverse=False, "
      "bool exclusive=False, Tensor(a!) out) -> Tensor(a!)",
      tags);
  m.def(
      "cumsum_(Tensor(a!) self, int dim, *, ScalarType? dtype=None, bool reverse=False, "
      "bool exclusive=False) -> Tensor(a!)",
      tags);
}

namespace gpuopt::scan {
namespace {

using at::ScalarType;
using at::Tensor;
using DTypeOption = std::optional<ScalarType>;

// ---------------------------------------------------------------- CPU: ATen's kernels

// Calls ATen and names the operator if ATen doesn't implement the dtype.
Tensor aten_cumsum(const char* op, const Tensor& values, const Scan& scan) {
  try {
    return at::cumsum(values, scan.dim, scan.dtype);
  } catch (const c10::NotImplementedError& error) {
    TORCH_CHECK_NOT_IMPLEMENTED(false, op, " (CPU) is not implemented for ", scan.dtype,
                                ": expected another dtype to sum in (",
                                error.what_without_backtrace(), ")");
  }
}

// A contiguous copy. ATen's flip is limited to 64 dimensions.
Tensor reversed(const Tensor& tensor, int64_t dim) {
  if (tensor.dim() == 0) return tensor.clone();
  return tensor.index_select(dim, at::arange(tensor.size(dim) - 1, -1, -1, at::kLong));
}

Tensor scan_cpu(const char* op, const Tensor& self, const Scan& scan) {
  const Tensor values = scan.reverse ? reversed(self, scan.dim) : self;
  Tensor result;
  if (!scan.exclusive) {
    result = aten_cumsum(op, values, scan);
  } else {
    result = unfilled(self.sizes(), self.options().dtype(scan.dtype));
    if (self.dim() == 0 || self.size(scan.dim) <= 1) {
      result.zero_();
    } else {
      const int64_t before = self.size(scan.dim) - 1;
      result.narrow(scan.dim, 0, 1).zero_();
      result.narrow(scan.dim, 1, before)
          .copy_(aten_cumsum(op, values.narrow(scan.dim, 0, before), scan));
    }
  }
  return scan.reverse ? reversed(result, scan.dim) : result;
}

Tensor cumsum_cpu(const Tensor& self, int64_t dim, DTypeOption dtype, bool reverse,
                  bool exclusive) {
  return scan_cpu("gpuopt::cumsum", self, check_cumsum(self, dim, dtype, reverse, exclusive));
}

Tensor& cumsum_out_cpu(const Tensor& self, int64_t dim, DTypeOption dtype, bool reverse,
                       bool exclusive, Tensor& out) {
  const Scan scan = check_cumsum_out(self, dim, dtype, reverse, exclusive, out);
  const Tensor result = scan_cpu("gpuopt::cumsum", self, scan);
  at::native::resize_output(out, result.sizes());
  return out.copy_(result);
}

Tensor& cumsum_inplace_cpu(Tensor& self, int64_t dim, DTypeOption dtype, bool reverse,
                           bool exclusive) {
  const Scan scan = check_cumsum_inplace(self, dim, dtype, reverse, exclusive);
  check_writable("gpuopt::cumsum_", {"self", self}, {});
  return self.copy_(scan_cpu("gpuopt::cumsum_", self, scan));
}

TORCH_LIBRARY_IMPL(gpuopt, CPU, m) {
  m.impl("cumsum", cumsum_cpu);
  m.impl("cumsum.out", cumsum_out_cpu);
  m.impl("cumsum_", cumsum_inplace_cpu);
}

// ---------------------------------------------------------------- Meta: shapes, possibly symbolic

Tensor cumsum_meta(const Tensor& self, int64_t dim, DTypeOption dtype, bool reverse,
                   bool exclusive) {
  const Scan scan = check_cumsum(self, dim, dtype, reverse, exclusive);
  return at::empty_symint(self.sym_sizes(), self.options().dtype(scan.dtype));
}

Tensor& cumsum_out_meta(const Tensor& self, int64_t dim, DTypeOption dtype, bool reverse,
                        bool exclusive, Tensor& out) {
  check_cumsum_out(self, dim, dtype, reverse, exclusive, out);
  at::native::resize_output_symint(out, self.sym_sizes());
  return out;
}

Tensor& cumsum_inplace_meta(Tensor& self, int64_t dim, DTypeOption dtype, bool reverse,
                            bool exclusive) {
  check_cumsum_inplace(self, dim, dtype, reverse, exclusive);
  check_writable("gpuopt::cumsum_", {"self", self}, {});
  return self;
}

TORCH_LIBRARY_IMPL(gpuopt, Meta, m) {
  m.impl("cumsum", cumsum_meta);
  m.impl("cumsum.out", cumsum_out_meta);
  m.impl("cumsum_", cumsum_inplace_meta);
}

}  // namespace
}  // namespace gpuopt::scan
