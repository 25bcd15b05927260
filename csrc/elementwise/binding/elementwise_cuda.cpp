// The CUDA bindings of the element-wise operators. Each makes a Problem of ATen's iterator, plans
// it and calls a launcher.
#include <ATen/ATen.h>
#include <ATen/ScalarOps.h>

#include <algorithm>
#include <array>

#include "binding/cuda_launch.h"
#include "elementwise/binding/elementwise_check.h"
#include "elementwise/binding/elementwise_iterator.h"
#include "elementwise/elementwise.h"
#include "elementwise/elementwise_plan.h"

namespace gpuopt::elementwise {
namespace {

using at::Tensor;

Operand make_operand(const char* op, const Iterator& iterator, int argument) {
  Operand operand;
  operand.data = iterator.data_ptr(argument);
  operand.dtype = to_dtype(op, iterator.dtype(argument));
  const auto item = static_cast<int64_t>(size_of(operand.dtype));
  const at::IntArrayRef strides = iterator.strides(argument);
  for (int d = 0; d < iterator.ndim(); ++d) operand.strides[d] = strides[d] / item;
  return operand;
}

// `inputs` lists the iterator's arguments in the order of the launcher's operands.
template <size_t kCount>
Problem<kCount> make_problem(const char* op, const Iterator& iterator,
                             const std::array<int, kCount>& inputs, at::ScalarType dtype) {
  TORCH_CHECK(iterator.ndim() <= kMaxDims, op,
              ": operands have too many dimensions: expected at "
              "most ",
              kMaxDims, " once neighbours are merged, got ", iterator.ndim());
  Problem<kCount> problem;
  problem.dtype = to_dtype(op, dtype);
  problem.num_dims = iterator.ndim();
  for (int d = 0; d < iterator.ndim(); ++d) problem.sizes[d] = iterator.shape()[d];
  problem.operands[0] = make_operand(op, iterator, 0);
  for (size_t k = 0; k < kCount; ++k) {
    problem.operands[k + 1] = make_operand(op, iterator, inputs[k]);
  }
  TORCH_INTERNAL_ASSERT(promotes(problem));
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
  check_memory(op, {{"input", self}, {"other", other}, {"out", out}});
  const Iterator iterator(out, {&self, &other});
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
    const Problem problem = make_problem(op, iterator, std::array{tensor}, dtype);
    record("elementwise.1", problem);
    check_launch(op, mul_scalar(make_plan(problem, current_device()), value, stream));
    return result;
  }
  const Problem problem = make_problem(op, iterator, std::array{1, 2}, dtype);
  record("elementwise.2", problem);
  check_launch(op, mul(make_plan<Types::kAll>(problem, current_device()), stream));
  return result;
}

// out = self * other for a number. An undefined `out` is allocated.
Tensor mul_scalar_into(const char* op, const Tensor& self, const at::Scalar& other,
                       const Tensor& out) {
  check_memory(op, {{"input", self}, {"out", out}});
  const at::ScalarType dtype = at::result_type(self, other);
  const Iterator iterator(out, self, dtype);
  const Tensor result = iterator.output();
  if (iterator.numel() == 0) return result;
  const c10::cuda::CUDAGuard guard(result.device());
  const Problem problem = make_problem(op, iterator, std::array{1}, dtype);
  check_launch(op, mul_scalar(make_plan(problem, current_device()), to_scalar_value(other),
                              c10::cuda::getCurrentCUDAStream()));
  return result;
}

cudaError_t launch(const Axpy& op, const Problem<2>& problem, cudaStream_t stream) {
  return axpy(make_plan(problem, current_device()), to_scalar_value(op.alpha), stream);
}
cudaError_t launch(const Fma&, const Problem<3>& problem, cudaStream_t stream) {
  return fma(make_plan(problem, current_device()), stream);
}

// The launchers' operands are the inputs in the order of the schema.
template <typename Op>
Tensor on_cuda(const Op& op) {
  constexpr size_t kCount = kInputs<Op>;
  const char* name = name_of<Op>();
  check(op);
  for (const NamedTensor& input : op.inputs()) check_memory(name, {input});
  auto operands = in_atens_order(op);
  const auto on_gpu = std::find_if_not(operands.begin(), operands.end(), is_cpu_scalar);
  const c10::Device device = on_gpu->device();
  std::array<int, kCount> arguments;
  for (size_t i = 0; i < kCount; ++i) {
    operands[i] = on_device(operands[i], device);
    arguments[(i + kFactors<Op>) % kCount] = static_cast<int>(i) + 1;
  }
  const Iterator iterator({}, operands_of(operands));
  const Tensor result = iterator.output();
  if (iterator.numel() == 0) return result;
  const c10::cuda::CUDAGuard guard(device);
  const Problem problem = make_problem(name, iterator, arguments, iterator.common_dtype());
  check_launch(name, launch(op, problem, c10::cuda::getCurrentCUDAStream()));
  return result;
}

template <>
Tensor on_cuda(const MulTensor& op) {
  check(op);
  return mul_into(name_of<MulTensor>(), op.self, op.other, {});
}

template <>
Tensor on_cuda(const MulScalar& op) {
  // ATen computes the strides of an empty product with an iterator over two operands. The iterator
  // over one operand would order dimensions of sizes 0 and 1 differently.
  if (op.self.numel() == 0) return at::mul(op.self, op.other);
  return mul_scalar_into(name_of<MulScalar>(), op.self, op.other, {});
}

Tensor& mul_out_cuda(const Out<MulTensor>& call) {
  check_write(call);
  mul_into(name_of<MulTensor>(), call.in.self, call.in.other, call.out);
  return call.out;
}

Tensor& mul_scalar_out_cuda(const Out<MulScalar>& call) {
  const Tensor other = at::native::wrapped_scalar_tensor(call.in.other);
  return mul_out_cuda({{call.in.self, other}, call.out});
}

Tensor& mul_inplace_cuda(const Inplace<MulTensor>& call) {
  check_write(call);
  mul_into(name_of<Inplace<MulTensor>>(), call.self, call.in.other, call.self);
  return call.self;
}

Tensor& mul_inplace_scalar_cuda(const Inplace<MulScalar>& call) {
  check_write(call);
  mul_scalar_into(name_of<Inplace<MulScalar>>(), call.self, call.in.other, call.self);
  return call.self;
}

TORCH_LIBRARY_IMPL(gpuopt, CUDA, m) {
  Ops::for_each([&]<typename Op>() { impl<Op, on_cuda<Op>>(m); });
  impl<Out<MulTensor>, mul_out_cuda>(m);
  impl<Out<MulScalar>, mul_scalar_out_cuda>(m);
  impl<Inplace<MulTensor>, mul_inplace_cuda>(m);
  impl<Inplace<MulScalar>, mul_inplace_scalar_cuda>(m);
}

}  // namespace
}  // namespace gpuopt::elementwise
