// The CUDA implementation of gpuopt::linear_recurrence: checks its arguments, describes them as a
// Problem, plans it, and calls the launcher.
#include "binding/cuda_launch.h"
#include "binding/unfilled.h"
#include "scan/binding/scan_check.h"
#include "scan/scan.h"

namespace gpuopt::scan {
namespace {

using at::Tensor;

// The operands have the result's shape and dtype. `initial` has size 1 in the scanned dimension.
Problem make_problem(const char* name, const Tensor& a, const Tensor& b, int64_t scanned,
                     const TensorOption& initial, bool reverse, const Tensor& out) {
  Problem problem;
  problem.in = b.const_data_ptr();
  problem.second = a.const_data_ptr();
  problem.out = out.mutable_data_ptr();
  if (initial.has_value()) problem.initial = initial->const_data_ptr();
  problem.in_dtype = problem.dtype = to_dtype(name, out.scalar_type());
  problem.reverse = reverse;
  for (int64_t d = 0; d < out.dim(); ++d) {
    Dim dim{out.size(d), b.stride(d), out.stride(d), a.stride(d), 0};
    if (d == scanned) {
      problem.scanned = dim;
    } else if (dim.size != 1) {
      if (initial.has_value()) dim.initial_stride = initial->stride(d);
      problem.dims[problem.num_dims++] = dim;
    }
  }
  return problem;
}

Tensor linear_recurrence_cuda(const LinearRecurrence& op) {
  const char* name = name_of<LinearRecurrence>();
  const auto& [a, b, dim, initial, reverse, shifted] = op;
  const Recurrence call = checked(op);
  const std::vector<int64_t> sizes = C10_AS_INTARRAYREF_SLOW(call.sizes).vec();
  const Tensor out = unfilled(sizes, b.options().dtype(call.dtype));
  if (out.numel() == 0) return out;
  const auto whole = [&](const Tensor& x) { return x.to(call.dtype).expand(sizes); };
  Tensor factors = whole(a), terms = whole(b), result = out;
  TensorOption first;
  if (initial.has_value()) {
    first = with_dim(initial->to(call.dtype), out.sym_sizes(), call.dim);
  }
  if (out.dim() == 0) {  // one row of one value
    for (Tensor* tensor : {&factors, &terms, &result}) *tensor = tensor->unsqueeze(0);
    if (first.has_value()) first = first->unsqueeze(0);
  }
  check_memory(name, {{"a", a}, {"b", b}, {"out", out}});
  const c10::cuda::CUDAGuard guard(b.device());
  TensorWorkspace workspace;
  const cudaStream_t stream = c10::cuda::getCurrentCUDAStream();
  const Problem problem = make_problem(name, factors, terms, call.dim, first, reverse, result);
  record("scan", problem);
  for_each_plan(problem, current_device(), limits<Tuning>(), [&](const Plan& plan) {
    check_launch(name, linear_recurrence(plan, shifted, workspace, stream));
  });
  return out;
}

TORCH_LIBRARY_IMPL(gpuopt, CUDA, m) { impl<LinearRecurrence, linear_recurrence_cuda>(m); }

}  // namespace
}  // namespace gpuopt::scan
