// The CUDA kernels of gpuopt::index_add and index_add_: a checked call -> Problem -> launcher.
#include <ATen/ATen.h>
#include <ATen/native/Resize.h>
#include <torch/library.h>

#include "binding/cuda_launch.h"
#include "binding/unfilled.h"
#include "index_add/binding/index_add_check.h"
#include "index_add/index_add.h"

namespace gpuopt::index_add {
namespace {

using at::Scalar;
using at::Tensor;

// Converts alpha as ATen's kernels do: to the dtype, except that it is not rounded to half types.
ScalarValue to_alpha(const Scalar& alpha, at::ScalarType dtype) {
  if (dtype == at::kBool) return {0, 0, alpha.toBool()};
  if (at::isIntegralType(dtype, /*includeBool=*/false)) {
    return to_scalar_value(Scalar(alpha.toLong()));
  }
  return to_scalar_value(alpha);
}

// The dtype of the parts of a complex number. The parts are one more dimension of the problem.
DType real_dtype(DType dtype) {
  switch (dtype) {
    case DType::kComplex32:
      return DType::kFloat16;
    case DType::kComplex64:
      return DType::kFloat32;
    case DType::kComplex128:
      return DType::kFloat64;
    default:
      return dtype;
  }
}

Problem make_problem(const char* op, const Call& call, const Tensor& self, const Tensor& index,
                     const Tensor& source, const Scalar& alpha) {
  const DType dtype = to_dtype(op, self.scalar_type());
  Problem problem;
  problem.self = self.mutable_data_ptr();
  problem.source = source.const_data_ptr();
  problem.index = index.const_data_ptr();
  problem.dtype = real_dtype(dtype);
  problem.long_index = index.scalar_type() == at::kLong;
  problem.mode = call.mode;
  problem.alpha = to_alpha(alpha, self.scalar_type());
  problem.entries = index.numel();
  problem.index_stride = index.dim() == 0 ? 1 : index.stride(0);
  problem.bins = 1;
  const int64_t parts = self.is_complex() ? 2 : 1;
  for (int64_t d = 0; d < self.dim(); ++d) {
    if (d == call.dim) {
      problem.bins = self.size(d);
      problem.bin_stride = self.stride(d) * parts;
      problem.entry_stride = source.stride(d) * parts;
    } else if (self.size(d) != 1) {
      problem.dims[problem.num_dims++] = {self.size(d), self.stride(d) * parts,
                                          source.stride(d) * parts};
    }
  }
  if (parts == 2) problem.dims[problem.num_dims++] = {2, 1, 1};
  return problem;
}

void add_to(const char* op, const Call& call, const Tensor& self, const Tensor& index,
            const Tensor& source, const Scalar& alpha);

// A complex alpha mixes the real and imaginary parts, which the kernels add separately. So the
// source is multiplied by alpha first. Except in mode fast, complex32 is widened first, so that
// sums are rounded once.
void add_scaled(const char* op, const Call& call, const Tensor& self, const Tensor& index,
                const Tensor& source, const Scalar& alpha) {
  if (self.scalar_type() == at::kComplexHalf && call.mode != Mode::kFast) {
    const Tensor wide = self.to(at::kComplexFloat);
    add_scaled(op, call, wide, index, source.to(at::kComplexFloat), alpha);
    self.copy_(wide);
    return;
  }
  add_to(op, call, self, index, source.mul(alpha), Scalar(1));
}

void add_to(const char* op, const Call& call, const Tensor& self, const Tensor& index,
            const Tensor& source, const Scalar& alpha) {
  if (source.numel() == 0) return;
  if (self.is_complex() && alpha.isComplex() && alpha.toComplexDouble().imag() != 0) {
    add_scaled(op, call, self, index, source, alpha);
    return;
  }
  TensorWorkspace workspace;
  const Problem problem = make_problem(op, call, self, index, source, alpha);
  check_launch(op, add(problem, current_device(), workspace, c10::cuda::getCurrentCUDAStream()));
}

Tensor index_add_cuda(const Tensor& self, int64_t dim, const Tensor& index, const Tensor& source,
                      const Scalar& alpha, std::string_view mode) {
  constexpr const char* op = "gpuopt::index_add";
  const Call call = check_index_add(op, self, dim, index, source, alpha, mode);
  check_memory(op, {{"self", self}, {"index", index}, {"source", source}});
  (void)to_dtype(op, self.scalar_type());
  const c10::cuda::CUDAGuard guard(self.device());
  const Tensor result = unfilled(self.sizes(), self.options());
  result.copy_(self);
  add_to(op, call, result, index, source, alpha);
  return result;
}

Tensor& index_add_out_cuda(const Tensor& self, int64_t dim, const Tensor& index,
                           const Tensor& source, const Scalar& alpha, std::string_view mode,
                           Tensor& out) {
  constexpr const char* op = "gpuopt::index_add";
  const Call call = check_out(op, self, dim, index, source, alpha, mode, out);
  check_memory(op, {{"self", self}, {"index", index}, {"source", source}, {"out", out}});
  (void)to_dtype(op, self.scalar_type());
  const c10::cuda::CUDAGuard guard(self.device());
  if (out.sizes() == self.sizes()) {
    out.copy_(self);
    add_to(op, call, out, index, source, alpha);
    return out;
  }
  // After it is resized, out may overlap the operands. So the sum is computed first.
  const Tensor result = unfilled(self.sizes(), self.options());
  result.copy_(self);
  add_to(op, call, result, index, source, alpha);
  at::native::resize_output(out, self.sizes());
  return out.copy_(result);
}

Tensor& index_add_inplace_cuda(Tensor& self, int64_t dim, const Tensor& index, const Tensor& source,
                               const Scalar& alpha, std::string_view mode) {
  constexpr const char* op = "gpuopt::index_add_";
  const Call call = check_inplace(op, self, dim, index, source, alpha, mode);
  check_memory(op, {{"self", self}, {"index", index}, {"source", source}});
  (void)to_dtype(op, self.scalar_type());
  const c10::cuda::CUDAGuard guard(self.device());
  add_to(op, call, self, index, source, alpha);
  return self;
}

TORCH_LIBRARY_IMPL(gpuopt, CUDA, m) {
  m.impl("index_add", index_add_cuda);
  m.impl("index_add.out", index_add_out_cuda);
  m.impl("index_add_", index_add_inplace_cuda);
}

}  // namespace
}  // namespace gpuopt::index_add
