// gpuopt::mul, mul_, axpy and fma: schemas, and the kernels for CPU, Meta, vmap and
// functionalization.
#include <ATen/Dispatch.h>
#include <ATen/OpMathType.h>
#include <ATen/ScalarOps.h>
#include <ATen/native/TypeProperties.h>
#include <ATen/ops/result_type_native.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "binding/ladder.h"
#include "binding/vmap.h"
#include "binding/writing.h"
#include "elementwise/binding/elementwise_check.h"
#include "elementwise/binding/elementwise_iterator.h"
#include "elementwise/ladder/elementwise_ladder.h"

namespace gpuopt::elementwise {
namespace {

using at::Tensor;

const RegisterLadder ladder(kLadder, "mul(Tensor self, Tensor other, int step) -> Tensor");

// The CPU kernels call ATen, except fma in floating-point types. Meta kernels of operators that
// write to an argument call ATen, too.

bool has_symbolic_shape_in(at::TensorList tensors) {
  return std::any_of(tensors.begin(), tensors.end(),
                     [](const at::Tensor& tensor) { return has_symbolic_shape(tensor); });
}

// The result of two or three operands on Meta, in the layout that ATen's iterator gives it on CUDA.
// The iterator doesn't know symbolic shapes, so they go through at::mul or at::addcmul of fp32
// operands. Other shapes don't, because these functions lose the order of dimensions on Meta, for
// example of expanded * transposed (torch 2.11): at::mul in fp16, bf16 and two different dtypes,
// at::addcmul in all dtypes.
at::Tensor result_meta(at::TensorList operands) {
  if (!has_symbolic_shape_in(operands)) return Iterator({}, operands_of(operands)).output();
  std::vector<at::Tensor> floats;
  for (const at::Tensor& operand : operands) {
    floats.push_back(at::empty_strided_symint(operand.sym_sizes(), operand.sym_strides(),
                                              operand.options().dtype(at::kFloat)));
  }
  const at::Tensor like = floats.size() == 2 ? at::mul(floats[0], floats[1])
                                             : at::addcmul(floats[0], floats[1], floats[2]);
  return at::empty_strided_symint(like.sym_sizes(), like.sym_strides(),
                                  like.options().dtype(at::native::result_type(operands)));
}

template <typename Op>
at::Tensor on_meta(const Op& op) {
  check(op);
  return result_meta(in_atens_order(op));
}

template <>
at::Tensor on_meta(const MulScalar& op) {
  return at::mul(op.self, op.other);
}

inline at::Tensor meta_of(const at::Tensor& tensor) {
  return at::empty_strided(tensor.sizes(), tensor.strides(), tensor.options().device(at::kMeta));
}

// The output for CPU operands of several dtypes, in the layout that it has on CUDA and Meta. ATen's
// CPU kernels cast some operands first and lay the result out like the casts, for example of
// expanded * transposed (torch 2.11). Undefined if all operands have one dtype, or are contiguous
// and of one shape.
at::Tensor result_of_casts(at::TensorList operands) {
  const at::Tensor* widest = nullptr;
  bool same = true, plain = true;
  for (const at::Tensor& operand : operands) {
    same = same && operand.scalar_type() == operands[0].scalar_type();
    if (operand.dim() == 0) continue;
    if (widest == nullptr) widest = &operand;
    plain = plain && operand.is_contiguous() && operand.sizes() == widest->sizes();
  }
  if (same || plain) return {};
  std::vector<at::Tensor> twins;
  for (const at::Tensor& operand : operands) twins.push_back(meta_of(operand));
  const at::Tensor like = result_meta(twins);
  return unfilled_strided(like.sizes(), like.strides(), like.options().device(at::kCPU));
}

// An undefined `out` is allocated by ATen.
at::Tensor by_aten(const MulTensor& op, at::Tensor& out) {
  return out.defined() ? at::mul_out(out, op.self, op.other) : at::mul(op.self, op.other);
}

at::Tensor by_aten(const MulScalar& op, at::Tensor&) { return at::mul(op.self, op.other); }

at::Tensor by_aten(const Axpy& op, at::Tensor& out) {
  const auto& [x, y, alpha] = op;
  return out.defined() ? at::add_out(out, y, x, alpha) : at::add(y, x, alpha);
}

// at::addcmul rounds twice, so floating-point types use std::fma.
at::Tensor by_aten(const Fma& op, at::Tensor& out) {
  const auto& [a, b, c] = op;
  const auto dtype = at::native::result_type(at::TensorList{c, a, b});
  if (!at::isFloatingType(dtype)) {
    return out.defined() ? at::addcmul_out(out, c, a, b) : at::addcmul(c, a, b);
  }
  Iterator iterator(out, {&c, &a, &b});
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, dtype, "gpuopt::fma", [&] {
    using C = at::opmath_type<scalar_t>;
    iterator.for_each([](char** data, const int64_t* strides, int64_t n) {
      const auto load = [&](int operand, int64_t i) {
        return static_cast<C>(
            *reinterpret_cast<const scalar_t*>(data[operand] + i * strides[operand]));
      };
      for (int64_t i = 0; i < n; ++i) {
        *reinterpret_cast<scalar_t*>(data[0] + i * strides[0]) =
            static_cast<scalar_t>(std::fma(load(2, i), load(3, i), load(1, i)));
      }
    });
  });
  return iterator.output();
}

template <typename Op>
at::Tensor on_cpu(const Op& op) {
  check(op);
  at::Tensor out = result_of_casts(in_atens_order(op));
  return by_aten(op, out);
}

// ---------------------------------------------------------------- forms that write, CPU and Meta

at::Tensor& mul_out_aten(const Out<MulTensor>& call) {
  check_write(call);
  return at::mul_out(call.out, call.in.self, call.in.other);
}

// wrapped_scalar_tensor keeps the number's precision, and promotes as a number.
at::Tensor& mul_scalar_out_aten(const Out<MulScalar>& call) {
  const at::Tensor other = at::native::wrapped_scalar_tensor(call.in.other);
  return mul_out_aten({{call.in.self, other}, call.out});
}

at::Tensor& mul_inplace_aten(const Inplace<MulTensor>& call) {
  check_write(call);
  return call.self.mul_(call.in.other);
}

at::Tensor& mul_inplace_scalar_cpu(const Inplace<MulScalar>& call) {
  check_write(call);
  // Python's x.mul_(number) passes a tensor, too. mul_(Scalar) would round the number to fp16 or
  // bf16 first.
  return call.self.mul_(at::native::wrapped_scalar_tensor(call.in.other));
}

at::Tensor& mul_inplace_scalar_meta(const Inplace<MulScalar>& call) {
  check_write(call);
  return call.self;
}

// ---------------------------------------------------------------- vmap

// Aligns operands so that their batch dimensions match. A batched scalar has no dimensions to the
// caller and one to the kernel, which can change type promotion. Such operands are cast to the
// dtype to which the caller's operands promote.
template <typename Op>
Tensor on_examples(const Op& op, const VmapLevel& level, const c10::SymInt&) {
  auto values = in_atens_order(op);
  const auto dtype = at::native::result_type(values);
  int64_t rank = 0;
  for (Tensor& value : values) {
    const VmapLevel::Operand operand = level.unwrap(value);
    rank = std::max(rank, operand.logical_dim());
    value = operand.value;
  }
  const bool casts = at::native::result_type(values) != dtype;
  const auto align = [&](const Tensor& tensor) {
    const Tensor aligned = level.unwrap(tensor).aligned(rank);
    return casts && tensor.dim() == 0 ? aligned.to(dtype) : aligned;
  };
  return level.wrap(call_mapped(op, align), 0);
}

template <>
Tensor on_examples(const MulScalar& op, const VmapLevel& level, const c10::SymInt&) {
  // at::result_type would dispatch, and this level is entered already.
  const auto dtype = at::native::result_type(op.self, known_number(op.other));
  const VmapLevel::Operand operand = level.unwrap(op.self);
  // A batched scalar must promote like the 0-d tensor that the caller sees.
  const Tensor value = operand.logical_dim() == 0 ? operand.value.to(dtype) : operand.value;
  return level.wrap(gpuopt::mul(value, op.other), operand.batch_dim);
}

Tensor& mul_inplace_vmap(const Inplace<MulTensor>& call) {
  const char* op = name_of<Inplace<MulTensor>>();
  const auto& [self, other] = call.in;
  // at::result_type dispatches, so it is called before this level is entered.
  const auto dtype = at::result_type(self, other);
  const VmapLevel level;
  const VmapLevel::Operand written = level.unwrap(self), factor = level.unwrap(other);
  TORCH_CHECK(written.batch_dim.has_value() || !factor.batch_dim.has_value(), op,
              ": input must be batched by torch.vmap when other is: expected an input "
              "that vmap maps over, got one shared by all examples");
  TORCH_CHECK(factor.logical_dim() <= written.logical_dim(), op,
              ": other must broadcast to input's shape: expected at most ", written.logical_dim(),
              " dimensions, got ", factor.logical_dim());
  check_castable(op, "input", dtype, self.scalar_type());
  Tensor aligned = factor.aligned(written.logical_dim());
  if (factor.logical_dim() == 0) aligned = aligned.to(dtype);
  Tensor view = written.aligned(written.logical_dim());
  handle<Inplace<MulTensor>>().call(view, aligned);
  return call.self;
}

Tensor& mul_inplace_scalar_vmap(const Inplace<MulScalar>& call) {
  const auto& [self, other] = call.in;
  check_castable(name_of<Inplace<MulScalar>>(), "input", at::result_type(self, known_number(other)),
                 self.scalar_type());
  const VmapLevel level;
  Tensor value = level.unwrap(self).value;
  handle<Inplace<MulScalar>>().call(value, other);
  return call.self;
}

TORCH_LIBRARY_FRAGMENT(gpuopt, m) {
  Ops::for_each([&]<typename Op>() {
    register_op<Op, Cpu<on_cpu<Op>>, Meta<on_meta<Op>>, Vmap<on_examples<Op>>>(m);
  });
  register_op<Out<MulTensor>, Cpu<mul_out_aten>, Meta<mul_out_aten>,
              WritesOut<checked<Out<MulTensor>>>>(m);
  register_op<Out<MulScalar>, Cpu<mul_scalar_out_aten>, Meta<mul_scalar_out_aten>,
              WritesOut<checked<Out<MulScalar>>>>(m);
  register_op<Inplace<MulTensor>, Cpu<mul_inplace_aten>, Meta<mul_inplace_aten>,
              Batched<mul_inplace_vmap>, Writes<checked<Inplace<MulTensor>>>>(m);
  register_op<Inplace<MulScalar>, Cpu<mul_inplace_scalar_cpu>, Meta<mul_inplace_scalar_meta>,
              Batched<mul_inplace_scalar_vmap>, Writes<checked<Inplace<MulScalar>>>>(m);
}

}  // namespace
}  // namespace gpuopt::elementwise
