// The CUDA implementations of gpuopt::cumsum and cumsum_. Each checks its arguments, describes them
// as a Problem, and calls a launcher.
#include <ATen/ATen.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/native/Resize.h>
#include <torch/library.h>

#include "binding/cuda_launch.h"
#include "binding/unfilled.h"
#include "scan/binding/scan_check.h"
#include "scan/scan.h"

namespace gpuopt::scan {
namespace {

using at::Tensor;
using DTypeOption = std::optional<at::ScalarType>;

Problem make_problem(const char* op, const Tensor& self, const Scan& scan, const Tensor& out) {
  Problem problem;
  problem.in = self.const_data_ptr();
  problem.out = out.mutable_data_ptr();
  problem.in_dtype = to_dtype(op, self.scalar_type());
  problem.dtype = to_dtype(op, scan.dtype);
  problem.reverse = scan.reverse;
  problem.exclusive = scan.exclusive;
  for (int64_t d = 0; d < self.dim(); ++d) {
    const Dim dim{self.size(d), self.stride(d), out.stride(d)};
    if (d == scan.dim) {
      problem.scanned = dim;
    } else if (dim.size != 1) {
      problem.dims[problem.num_dims++] = dim;
    }
  }
  return problem;
}

// No kernel reads uint16, uint32, uint64 and float8: they are converted to a copy first.
bool is_converted(const Tensor& self) {
  return at::isBarebonesUnsignedType(self.scalar_type()) || at::isFloat8Type(self.scalar_type());
}

// Refuses dtypes that no kernel supports, as ATen does: it calls no kernel for empty and 0-d
// tensors. Must be called before out is written or resized.
void check_dtypes(const char* op, const Tensor& self, const Scan& scan) {
  if (self.numel() == 0 || self.dim() == 0) return;
  if (!is_converted(self)) (void)to_dtype(op, self.scalar_type());
  (void)to_dtype(op, scan.dtype);
  TORCH_CHECK_NOT_IMPLEMENTED(scan.dtype != at::kBool && scan.dtype != at::kComplexHalf, op,
                              " (CUDA) is not implemented for ", scan.dtype,
                              ": expected another dtype to sum in");
}

// Writes the scan of self to out, which has its shape.
void scan_into(const char* op, const Tensor& self, const Scan& scan, const Tensor& out) {
  if (out.numel() == 0) return;
  if (self.dim() == 0) {
    if (scan.exclusive) {
      out.zero_();
    } else {
      out.copy_(self);
    }
    return;
  }
  check_memory(op, {{"self", self}, {"out", out}});
  const Tensor values = is_converted(self) ? self.to(scan.dtype) : self;
  const c10::cuda::CUDAGuard guard(self.device());
  TensorWorkspace workspace;
  check_launch(op, cumsum(make_problem(op, values, scan, out), workspace,
                          c10::cuda::getCurrentCUDAStream()));
}

// Whether out may be written while self is read.
bool is_apart(const Tensor& self, const Tensor& out) {
  if (!out.is_alias_of(self)) return true;
  if (!out.sizes().equals(self.sizes())) return false;
  return at::get_overlap_status(out, self) == at::MemOverlapStatus::No;
}

Tensor make_result(const Tensor& self, const Scan& scan) {
  return unfilled(self.sizes(), self.options().dtype(scan.dtype));
}

Tensor cumsum_cuda(const Tensor& self, int64_t dim, DTypeOption dtype, bool reverse,
                   bool exclusive) {
  constexpr const char* op = "gpuopt::cumsum";
  const Scan scan = check_cumsum(self, dim, dtype, reverse, exclusive);
  check_dtypes(op, self, scan);
  Tensor out = make_result(self, scan);
  scan_into(op, self, scan, out);
  return out;
}

Tensor& cumsum_out_cuda(const Tensor& self, int64_t dim, DTypeOption dtype, bool reverse,
                        bool exclusive, Tensor& out) {
  constexpr const char* op = "gpuopt::cumsum";
  const Scan scan = check_cumsum_out(self, dim, dtype, reverse, exclusive, out);
  check_dtypes(op, self, scan);
  const bool same = out.is_same(self);
  if (same || is_apart(self, out)) {
    at::native::resize_output(out, self.sizes());
    scan_into(op, self, scan, out);
    return out;
  }
  const Tensor result = make_result(self, scan);
  scan_into(op, self, scan, result);
  at::native::resize_output(out, self.sizes());
  return out.copy_(result);
}

Tensor& cumsum_inplace_cuda(Tensor& self, int64_t dim, DTypeOption dtype, bool reverse,
                            bool exclusive) {
  constexpr const char* op = "gpuopt::cumsum_";
  const Scan scan = check_cumsum_inplace(self, dim, dtype, reverse, exclusive);
  check_dtypes(op, self, scan);
  check_writable(op, {"self", self}, {});
  scan_into(op, self, scan, self);
  return self;
}

TORCH_LIBRARY_IMPL(gpuopt, CUDA, m) {
  m.impl("cumsum", cumsum_cuda);
  m.impl("cumsum.out", cumsum_out_cuda);
  m.impl("cumsum_", cumsum_inplace_cuda);
}

}  // namespace
}  // namespace gpuopt::scan
