// gpuopt::cumsum and cumsum_: schemas, and all kernels except CUDA's.
#include "binding/aten.h"
#include "binding/autocast.h"
#include "binding/ladder.h"
#include "binding/unfilled.h"
#include "binding/vmap.h"
#include "binding/writing.h"
#include "scan/binding/scan_check.h"
#include "scan/ladder/scan_ladder.h"

namespace gpuopt::scan {
namespace {

using namespace autograd_names;
using at::ScalarType;
using at::Tensor;

const RegisterLadder ladder(kLadder, "cumsum(Tensor self, int step) -> Tensor");

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

// ---------------------------------------------------------------- Meta: shapes, possibly symbolic

Tensor cumsum_meta(const Cumsum& op) {
  return at::empty_symint(op.self.sym_sizes(), op.self.options().dtype(*checked(op).dtype));
}

Tensor& cumsum_inplace_meta(const Inplace<Cumsum>& call) {
  checked_inplace(call);
  check_writable(name_of<Inplace<Cumsum>>(), {"input", call.self}, {});
  return call.self;
}

// ---------------------------------------------------------------- vmap

Tensor cumsum_vmap(const Cumsum& op, const VmapLevel& level, const c10::SymInt&) {
  const auto& [self, dim, dtype, reverse, exclusive] = op;
  const int64_t own = checked(op).dim;
  const VmapLevel::Operand operand = level.unwrap(self);
  // A zero-dimensional example is scanned along an extra dimension of size 1.
  const Tensor result = call(Cumsum{operand.aligned(1), own + 1, dtype, reverse, exclusive});
  return level.wrap(operand.logical_dim() == 0 ? result.squeeze(1) : result, 0);
}

Tensor& cumsum_inplace_vmap(const Inplace<Cumsum>& call) {
  const auto& [self, dim, dtype, reverse, exclusive] = call.in;
  const int64_t own = checked_dim(name_of<Inplace<Cumsum>>(), dim, self.dim());
  const VmapLevel level;
  const VmapLevel::Operand operand = level.unwrap(self);
  Tensor written = operand.aligned(1);
  const int64_t below = operand.batch_dim.has_value() ? own + 1 : own;
  gpuopt::call(Inplace<Cumsum>{{written, below, dtype, reverse, exclusive}, written});
  return call.self;
}

// ---------------------------------------------------------------- derivatives

// A cumulative sum is linear, and its adjoint is the sum in the other direction.
struct CumsumBackward : GradNode {
  explicit CumsumBackward(const Cumsum& op)
      : GradNode(op.self),
        dim_(checked(op).dim),
        dtype_(op.self.scalar_type()),
        reverse_(op.reverse),
        exclusive_(op.exclusive) {}
  explicit CumsumBackward(const Inplace<Cumsum>& call) : CumsumBackward(checked_inplace(call)) {}
  std::string name() const override { return "GpuoptCumsumBackward"; }
  void describe_state(NodeState& state) const override {
    state(dim_, dtype_, reverse_, exclusive_);
  }

  variable_list gradients(const Tensor& of_result) override {
    const bool drops = of_result.is_complex() && !at::isComplexType(dtype_);
    const Tensor grad = drops ? at::real(of_result) : of_result;
    // Converted first, as in ATen, so that second derivatives round as ATen's do.
    return {call(Cumsum{grad.to(dtype_), dim_, dtype_, !reverse_, exclusive_})};
  }

 private:
  int64_t dim_;
  ScalarType dtype_;  // of self
  bool reverse_, exclusive_;
};

Tensor cumsum_autograd(const Cumsum& op, DispatchKeySet keys) {
  if (compute_requires_grad(op.self) || has_tangent(op.self)) {
    TORCH_CHECK(!op.dtype.has_value() || torch::autograd::isDifferentiableType(*op.dtype),
                "gpuopt::cumsum: dtype must be differentiable when input is: expected a "
                "floating-point or complex dtype for an input that requires a gradient or has a "
                "tangent, got ",
                op.dtype.value_or(op.self.scalar_type()));
  }
  return differentiate<CumsumBackward>(op, keys);
}

TORCH_LIBRARY_FRAGMENT(gpuopt, m) {
  register_op<Cumsum, Cpu<cumsum_cpu>, Meta<cumsum_meta>, Vmap<cumsum_vmap>,
              Autograd<cumsum_autograd>, AutocastSum>(m);
  register_op<Out<Cumsum>, CopiesToOut<checked_out, cumsum_cpu, cumsum_meta>>(m);
  register_op<Inplace<Cumsum>, Cpu<cumsum_inplace_cpu>, Meta<cumsum_inplace_meta>,
              Batched<cumsum_inplace_vmap>, Grad<CumsumBackward>, Writes<checked_inplace>>(m);
}

}  // namespace
}  // namespace gpuopt::scan
