// The CUDA implementations of gpuopt::cumsum and cumsum_. Each checks its arguments, describes them
// as a Problem, plans it, and calls a launcher.
#include "binding/cuda_launch.h"
#include "binding/unfilled.h"
#include "scan/binding/scan_check.h"
#include "scan/scan.h"

namespace gpuopt::scan {
namespace {

using at::Tensor;

// The functions below take a checked call. `name` is the name of the operator in messages.

// Describes the scan of `self`, which may be a copy of the call's.
Problem make_problem(const char* name, const Cumsum& op, const Tensor& self, const Tensor& out) {
  Problem problem;
  problem.in = self.const_data_ptr();
  problem.out = out.mutable_data_ptr();
  problem.in_dtype = to_dtype(name, self.scalar_type());
  problem.dtype = to_dtype(name, *op.dtype);
  problem.reverse = op.reverse;
  problem.exclusive = op.exclusive;
  for (int64_t d = 0; d < self.dim(); ++d) {
    const Dim dim{self.size(d), self.stride(d), out.stride(d)};
    if (d == op.dim) {
      problem.scanned = dim;
    } else if (dim.size != 1) {
      problem.dims[problem.num_dims++] = dim;
    }
  }
  return problem;
}

// Refuses dtypes that no kernel supports, as ATen does: it calls no kernel for empty and 0-d
// tensors. Must be called before out is written or resized.
void check_dtypes(const char* name, const Cumsum& op) {
  const Tensor& self = op.self;
  if (self.numel() == 0 || self.dim() == 0) return;
  if (!is_converted(self.scalar_type())) (void)to_dtype(name, self.scalar_type());
  (void)to_dtype(name, *op.dtype);
  TORCH_CHECK_NOT_IMPLEMENTED(*op.dtype != at::kBool && *op.dtype != at::kComplexHalf, name,
                              " (CUDA) is not implemented for ", *op.dtype,
                              ": expected another dtype to sum in");
}

// Writes the scan of self to out, which has its shape.
void scan_into(const char* name, const Cumsum& op, const Tensor& out) {
  const Tensor& self = op.self;
  if (out.numel() == 0) return;
  if (self.dim() > 0) check_memory(name, {{"input", self}, {"out", out}});
  if (self.dim() == 0 || self.size(op.dim) == 1) {  // nothing is added
    if (op.exclusive) {
      out.zero_();
    } else {
      out.copy_(self);
    }
    return;
  }
  const Tensor values = is_converted(self.scalar_type()) ? self.to(*op.dtype) : self;
  const c10::cuda::CUDAGuard guard(self.device());
  TensorWorkspace workspace;
  const cudaStream_t stream = c10::cuda::getCurrentCUDAStream();
  const Problem problem = make_problem(name, op, values, out);
  record("scan", problem);
  for_each_plan(problem, current_device(), limits<Tuning>(),
                [&](const Plan& plan) { check_launch(name, cumsum(plan, workspace, stream)); });
}

Tensor cumsum_cuda(const Cumsum& given) {
  const char* name = name_of<Cumsum>();
  const Cumsum op = checked(given);
  check_dtypes(name, op);
  const Tensor out = unfilled(op.self.sizes(), op.self.options().dtype(*op.dtype));
  scan_into(name, op, out);
  return out;
}

Tensor& cumsum_out_cuda(const Out<Cumsum>& call) {
  const char* name = name_of<Cumsum>();
  const Cumsum op = checked_out(call);
  const at::IntArrayRef sizes = op.self.sizes();
  check_dtypes(name, op);
  return write_out(call.out, sizes, call.out.is_same(op.self) || is_apart(call.out, op.self, sizes),
                   [&](const Tensor& result) { scan_into(name, op, result); });
}

Tensor& cumsum_inplace_cuda(const Inplace<Cumsum>& call) {
  const char* name = name_of<Inplace<Cumsum>>();
  const Cumsum op = checked_inplace(call);
  check_dtypes(name, op);
  check_writable(name, {"input", call.self}, {});
  scan_into(name, op, call.self);
  return call.self;
}

TORCH_LIBRARY_IMPL(gpuopt, CUDA, m) {
  impl<Cumsum, cumsum_cuda>(m);
  impl<Out<Cumsum>, cumsum_out_cuda>(m);
  impl<Inplace<Cumsum>, cumsum_inplace_cuda>(m);
}

}  // namespace
}  // namespace gpuopt::scan
