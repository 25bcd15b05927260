// The CUDA bindings of gpuopt::mul, mul_, axpy and fma. Each makes a Problem of ATen's iterator
// and calls a launcher.
#include <ATen/ATen.h>
#include <ATen/ScalarOps.h>
#include <torch/library.h>

#include "binding/cuda_launch.h"
#include "elementwise/binding/elementwise_check.h"
#include "elementwise/elementwise.h"

namespace gpuopt::elementwise {
namespace {

using at::Tensor;
using at::TensorIterator;

Operand make_operand(const char* op, const TensorIterator& iterator, int argument) {
  Operand operand;
  operand.data = iterator.data_ptr(argument);
  operand.dtype = to_dtype(op, iterator.dtype(argument));
  const auto item = static_cast<int64_t>(size_of(operand.dtype));
  const at::IntArrayRef strides = iterator.strides(argument);
  for (int d = 0; d < iterator.ndim(); ++d) operand.strides[d] = strides[d] / item;
  return operand;
}

// `inputs` lists the iterator's arguments in the order of the launcher's operands.
Problem make_problem(const char* op, const TensorIterator& iterator,
                     std::initializer_list<int> inputs, at::ScalarType dtype) {
  TORCH_CHECK(iterator.ndim() <= kMaxDims, op,
              ": operands have too many dimensions: expected at "
              "most ",
              kMaxDims, " once neighbours are merged, got ", iterator.ndim());
  Problem problem;
  problem.dtype = to_dtype(op, dtype);
  problem.num_dims = iterator.ndim();
  for (int d = 0; d < iterator.ndim(); ++d) problem.sizes[d] = iterator.shape()[d];
  problem.operands[0] = make_operand(op, iterator, 0);
  for (const int argument : inputs) {
    problem.operands[++problem.num_inputs] = make_operand(op, iterator, argument);
  }
  return problem;
}

// Moves a zero-dimensional CPU tensor to `device` with a fill kernel, and returns other tensors
// unchanged. A copy would synchronise and could not be captured in a CUDA graph.
Tensor on_device(const Tensor& tensor, c10::Device device) {
  if (!is_cpu_scalar(tensor) || device.is_cpu()) return tensor;
  return unfilled({}, tensor.options().device(device)).fill_(tensor.item());
}

// out = self * other. An undefined `out` is allocated.
Tensor mul_into(const char* op, const Tensor& self, const Tensor& other, const Tensor& out) {
  check_memory(op, {{"self", self}, {"other", other}, {"out", out}});
  TensorIterator iterator = make_iterator(out, {self, other});
  const Tensor result = iterator.output();
  if (iterator.numel() == 0) return result;
  const c10::cuda::CUDAGuard guard(result.device());
  const auto stream = c10::cuda::getCurrentCUDAStream();
  const at::ScalarType dtype = iterator.common_dtype();
  // A CPU scalar becomes an argument of the launch, as in ATen. fp16 and bf16 values are then
  // multiplied by the unrounded scalar.
  for (const int scalar : {2, 1}) {
    if (!iterator.is_cpu_scalar(scalar)) continue;
    const int tensor = 3 - scalar;
    if (iterator.is_cpu_scalar(tensor)) {
      return mul_into(op, on_device(self, result.device()), other, result);
    }
    const ScalarValue value = to_scalar_value(iterator.input(scalar - 1).item());
    check_launch(op, mul_scalar(make_problem(op, iterator, {tensor}, dtype), value, stream));
    return result;
  }
  check_launch(op, mul(make_problem(op, iterator, {1, 2}, dtype), stream));
  return result;
}

// out = self * other for a number. An undefined `out` is allocated.
Tensor mul_scalar_into(const char* op, const Tensor& self, const at::Scalar& other,
                       const Tensor& out) {
  check_memory(op, {{"self", self}, {"out", out}});
  const at::ScalarType dtype = at::result_type(self, other);
  TensorIterator iterator =
      with_output(out, {self}, [dtype](const Tensor& output, at::TensorList inputs) {
        at::TensorIteratorConfig config;
        config.check_all_same_dtype(false).add_owned_output(output).add_owned_const_input(
            inputs[0]);
        if (!output.defined()) config.declare_static_dtype(dtype);
        return config.build();
      });
  const Tensor result = iterator.output();
  if (iterator.numel() == 0) return result;
  const c10::cuda::CUDAGuard guard(result.device());
  const Problem problem = make_problem(op, iterator, {1}, dtype);
  check_launch(op, mul_scalar(problem, to_scalar_value(other), c10::cuda::getCurrentCUDAStream()));
  return result;
}

Tensor mul_cuda(const Tensor& self, const Tensor& other) {
  constexpr const char* op = "gpuopt::mul";
  check_inputs(op, {{"self", self}, {"other", other}});
  return mul_into(op, self, other, {});
}

Tensor mul_scalar_cuda(const Tensor& self, const at::Scalar& other) {
  // ATen computes the strides of an empty product with an iterator over two operands. The iterator
  // over one operand would order dimensions of sizes 0 and 1 differently.
  if (self.numel() == 0) return at::mul(self, other);
  return mul_scalar_into("gpuopt::mul", self, other, {});
}

Tensor& mul_out_cuda(const Tensor& self, const Tensor& other, Tensor& out) {
  constexpr const char* op = "gpuopt::mul";
  check_out(op, self, other, out);
  mul_into(op, self, other, out);
  return out;
}

Tensor& mul_scalar_out_cuda(const Tensor& self, const at::Scalar& other, Tensor& out) {
  return mul_out_cuda(self, at::native::wrapped_scalar_tensor(other), out);
}

Tensor& mul_inplace_cuda(Tensor& self, const Tensor& other) {
  constexpr const char* op = "gpuopt::mul_";
  check_inplace(op, self, other);
  mul_into(op, self, other, self);
  return self;
}

Tensor& mul_inplace_scalar_cuda(Tensor& self, const at::Scalar& other) {
  constexpr const char* op = "gpuopt::mul_";
  check_inplace(op, self, other);
  mul_scalar_into(op, self, other, self);
  return self;
}

Tensor axpy_cuda(const Tensor& x, const Tensor& y, const at::Scalar& alpha) {
  constexpr const char* op = "gpuopt::axpy";
  check_axpy(x, y, alpha);
  check_memory(op, {{"x", x}, {"y", y}});
  const c10::Device device = is_cpu_scalar(y) ? x.device() : y.device();
  TensorIterator iterator = make_iterator({}, {on_device(y, device), on_device(x, device)});
  const Tensor result = iterator.output();
  if (iterator.numel() == 0) return result;
  const c10::cuda::CUDAGuard guard(device);
  const Problem problem = make_problem(op, iterator, {2, 1}, iterator.common_dtype());
  check_launch(op, axpy(problem, to_scalar_value(alpha), c10::cuda::getCurrentCUDAStream()));
  return result;
}

Tensor fma_cuda(const Tensor& a, const Tensor& b, const Tensor& c) {
  constexpr const char* op = "gpuopt::fma";
  check_fma(a, b, c);
  check_memory(op, {{"a", a}, {"b", b}, {"c", c}});
  const c10::Device device =
      !is_cpu_scalar(a) ? a.device() : (!is_cpu_scalar(b) ? b.device() : c.device());
  TensorIterator iterator =
      make_iterator({}, {on_device(c, device), on_device(a, device), on_device(b, device)});
  const at::ScalarType dtype = iterator.common_dtype();
  const Tensor result = iterator.output();
  if (iterator.numel() == 0) return result;
  const c10::cuda::CUDAGuard guard(device);
  const Problem problem = make_problem(op, iterator, {2, 3, 1}, dtype);
  check_launch(op, fma(problem, c10::cuda::getCurrentCUDAStream()));
  return result;
}

TORCH_LIBRARY_IMPL(gpuopt, CUDA, m) {
  m.impl("mul.Tensor", mul_cuda);
  m.impl("mul.Scalar", mul_scalar_cuda);
  m.impl("mul.out", mul_out_cuda);
  m.impl("mul.Scalar_out", mul_scalar_out_cuda);
  m.impl("mul_.Tensor", mul_inplace_cuda);
  m.impl("mul_.Scalar", mul_inplace_scalar_cuda);
  m.impl("axpy", axpy_cuda);
  m.impl("fma", fma_cuda);
}

}  // namespace
}  // namespace gpuopt::elementwise
