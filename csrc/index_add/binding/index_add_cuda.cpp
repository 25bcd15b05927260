// The CUDA kernels of gpuopt::index_add and index_add_: a checked call -> Problem -> Plans ->
// launcher.
#include <ATen/ATen.h>
#include <ATen/OpMathType.h>
#include <ATen/native/Resize.h>

#include "binding/cuda_launch.h"
#include "binding/unfilled.h"
#include "index_add/binding/index_add_check.h"
#include "index_add/index_add.h"

namespace gpuopt::index_add {
namespace {

using at::Scalar;

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

// `self` is the tensor that is added to. It may be float32 where the source is a half type.
Problem make_problem(const Call& call, const Tensor& self) {
  const auto& [_, dim, index, source, alpha, mode] = call.op;
  const DType dtype = to_dtype(call.name, source.scalar_type());
  Problem problem;
  problem.wide_self = self.scalar_type() != source.scalar_type();
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
    if (d == dim) {
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

void add_to(const Tensor& self, const Call& call);

// A complex alpha mixes the real and imaginary parts, which the kernels add separately. So the
// source is multiplied by alpha first. Except in mode fast, complex32 is widened first, so that
// sums are rounded once.
void add_scaled(const Tensor& self, const Call& call) {
  const auto& op = call.op;
  const auto with_source = [&](const Tensor& source, const Scalar& alpha) -> Call {
    return {call.name, {op.self, op.dim, op.index, source, alpha, op.mode}, call.mode};
  };
  if (self.scalar_type() == at::kComplexHalf && call.mode != Mode::kFast) {
    const Tensor wide = self.to(at::kComplexFloat);
    add_scaled(wide, with_source(op.source.to(at::kComplexFloat), op.alpha));
    self.copy_(wide);
    return;
  }
  add_to(self, with_source(op.source.mul(op.alpha), Scalar(1)));
}

void launch_parts(const char* op, const Problem& problem) {
  const cudaStream_t stream = c10::cuda::getCurrentCUDAStream();
  TensorWorkspace workspace;
  const auto launch_part = [&](const Plan& plan) {
    workspace.release();
    return launch(plan, workspace, stream);
  };
  check_launch(op, for_each_plan(problem, current_device(), limits<Tuning>(), launch_part));
}

void add_to(const Tensor& self, const Call& call) {
  const Scalar& alpha = call.op.alpha;
  if (call.op.source.numel() == 0) return;
  if (self.is_complex() && alpha.isComplex() && alpha.toComplexDouble().imag() != 0) {
    add_scaled(self, call);
    return;
  }
  const Problem problem = make_problem(call, self);
  record("index_add", problem);
  if (adds_in_float32(problem, current_device(), limits<Tuning>())) {
    const Tensor wide = self.to(at::toOpMathType(self.scalar_type()));
    launch_parts(call.name, make_problem({call.name, call.op, Mode::kFast}, wide));
    self.copy_(wide);
  } else {
    launch_parts(call.name, problem);
  }
}

// What only a CUDA call is checked for. An `out` that is not defined is not part of the call.
void check_cuda(const Call& call, const Tensor& out = {}) {
  const auto& op = call.op;
  check_memory(call.name,
               {{"input", op.self}, {"index", op.index}, {"source", op.source}, {"out", out}});
  (void)to_dtype(call.name, op.self.scalar_type());
}

Tensor sum_on_cuda(const Call& call) {
  const Tensor result = unfilled(call.op.self.sizes(), call.op.self.options());
  result.copy_(call.op.self);
  add_to(result, call);
  return result;
}

Tensor index_add_cuda(const IndexAdd& op) {
  const Call call = check(op);
  check_cuda(call);
  const c10::cuda::CUDAGuard guard(op.self.device());
  return sum_on_cuda(call);
}

Tensor& index_add_out_cuda(const Out<IndexAdd>& given) {
  const Call call = check(given);
  const Tensor& self = call.op.self;
  Tensor& out = given.out;
  check_cuda(call, out);
  const c10::cuda::CUDAGuard guard(self.device());
  if (out.sizes() == self.sizes()) {
    out.copy_(self);
    add_to(out, call);
    return out;
  }
  // After it is resized, out may overlap the operands. So the sum is computed first.
  const Tensor result = sum_on_cuda(call);
  at::native::resize_output(out, self.sizes());
  return out.copy_(result);
}

Tensor& index_add_inplace_cuda(const Inplace<IndexAdd>& given) {
  const Call call = check(given);
  check_cuda(call);
  const c10::cuda::CUDAGuard guard(given.self.device());
  add_to(given.self, call);
  return given.self;
}

TORCH_LIBRARY_IMPL(gpuopt, CUDA, m) {
  impl<IndexAdd, index_add_cuda>(m);
  impl<Out<IndexAdd>, index_add_out_cuda>(m);
  impl<Inplace<IndexAdd>, index_add_inplace_cuda>(m);
}

}  // namespace

Additions additions(const char* op, const Tensor& self, int64_t dim, const Tensor& index,
                    const Tensor& source) {
  const IndexAdd accurate{self, dim, index, source, 1, "accurate"};
  const Problem problem = make_problem({op, accurate, Mode::kAccurate}, self);
  const Device device = current_device();
  const Tuning tuning = limits<Tuning>();
  if (adds_in_float32(problem, device, tuning)) return Additions::kInFloat32;
  const Path path = choose_path(problem, make_layout(problem), device, tuning);
  return path == Path::kSorted ? Additions::kSorted : Additions::kDirect;
}

void add_to_float32(const char* op, const Tensor& self, int64_t dim, const Tensor& index,
                    const Tensor& source) {
  launch_parts(op, make_problem({op, {self, dim, index, source, 1, "fast"}, Mode::kFast}, self));
}

}  // namespace gpuopt::index_add
