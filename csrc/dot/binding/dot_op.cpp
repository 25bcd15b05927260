// gpuopt::dot, vdot, dot_rows and dot_fast_atomic: schemas, and all kernels except CUDA's.
#include <array>
#include <utility>

#include "binding/autocast.h"
#include "binding/ladder.h"
#include "binding/vmap.h"
#include "binding/writing.h"
#include "dot/binding/dot_check.h"
#include "dot/binding/dot_ops.h"
#include "dot/ladder/dot_ladder.h"
#include "elementwise/binding/elementwise_ops.h"

namespace gpuopt::dot {
namespace {

using namespace autograd_names;
using c10::SymInt;

using Ops = OpList<Dot, Vdot, DotRows, DotFastAtomic>;

const RegisterLadder ladder(kLadder, "dot(Tensor self, Tensor tensor, int step) -> Tensor");

// ---------------------------------------------------------------- CPU: ATen's kernels

Tensor by_aten(const Dot& op) { return at::dot(op.self, op.other); }
Tensor by_aten(const Vdot& op) { return at::vdot(op.self, op.other); }
Tensor by_aten(const DotFastAtomic& op) { return at::dot(op.self, op.other); }

// As torch.vmap(torch.dot): multiplies each row by a column with matmul. Autocast is switched off,
// since it leaves dot_rows alone but would run matmul in a lower precision.
Tensor by_aten(const DotRows& op) {
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  return at::matmul(op.self.unsqueeze(1), op.other.unsqueeze(2)).view({op.self.size(0)});
}

// ATen returns some products of conjugated operands as a conjugated view, which is resolved here.
template <typename Op>
Tensor dot_cpu(const Op& op) {
  check(op);
  return by_aten(op).resolve_conj();
}

// ---------------------------------------------------------------- Meta: shapes, possibly symbolic

template <typename Op>
Tensor dot_meta(const Op& op) {
  check(op);
  return at::empty_symint(op.self.sym_sizes().slice(0, op.self.dim() - 1), op.self.options());
}

// The wider of the operands' dtypes. torch.dot and torch.vdot cast to it under autocast on CUDA,
// but not on the CPU.
constexpr auto promoted = [](const auto& op, c10::DeviceType device) {
  const auto lower = at::autocast::get_lower_precision_fp_from_device_type(device);
  return at::autocast::promote_type(lower, device, op.self, op.other);
};

// ---------------------------------------------------------------- vmap

// All examples of vectors are the rows of one call of dot_rows, and so are the rows of all
// examples.
template <typename Op>
Tensor dot_vmap(const Op& op, const VmapLevel& level, const SymInt& examples) {
  check(op);
  const Tensor left = level.unwrap(op.self).in_front(examples);
  const Tensor right = level.unwrap(op.other).in_front(examples);
  if constexpr (std::is_same_v<Op, DotRows>) {
    const Tensor result = call(DotRows{left.flatten(0, 1), right.flatten(0, 1)});
    const std::array<SymInt, 2> sizes{examples, left.sym_size(1)};
    return level.wrap(result.unflatten_symint(0, sizes), 0);
  } else {
    return level.wrap(call(DotRows{std::is_same_v<Op, Vdot> ? left.conj() : left, right}), 0);
  }
}

// ---------------------------------------------------------------- derivatives

// Each operand's gradient is the result's times the other operand. The result's gradient gets a
// last dimension of size 1, so that it broadcasts to the operands.
//   dot:   d(x . y) = y dx + x dy, so the other operand is conjugated.
//   vdot:  conj(x) . y is not holomorphic in x, so x's gradient takes the conjugate of the
//   result's.
template <typename Op>
struct DotBackward : ProductNode {
  static constexpr bool kVdot = std::is_same_v<Op, Vdot>;

  explicit DotBackward(const Op& op) : ProductNode(op.self, op.other) {
    save_factors(op.self, op.other);
  }
  std::string name() const override {
    if (kVdot) return "GpuoptVdotBackward";
    if (std::is_same_v<Op, DotRows>) return "GpuoptDotRowsBackward";
    return std::is_same_v<Op, Dot> ? "GpuoptDotBackward" : "GpuoptDotFastAtomicBackward";
  }

  variable_list gradients(const Tensor& of_result) override {
    variable_list inputs(2);
    const Tensor grad = of_result.unsqueeze(-1);
    if (task_should_compute_output(0)) {
      const Tensor other = second_.unpack();
      inputs[0] = kVdot ? gpuopt::mul(grad.conj(), other) : gpuopt::mul(grad, other.conj());
    }
    if (task_should_compute_output(1)) {
      const Tensor self = first_.unpack();
      inputs[1] = gpuopt::mul(grad, kVdot ? self : self.conj());
    }
    return inputs;
  }

  static Tensor tangent(const Op& op, const Tensor&) {
    using TangentOp = std::conditional_t<std::is_same_v<Op, DotFastAtomic>, Dot, Op>;
    return tangent_of_product(op.self, op.other, [](const Tensor& self, const Tensor& other) {
      return call(TangentOp{self, other});
    });
  }
};

// The kernels conjugate values as they read them, so a conjugated view is not copied first.
using ReadsConjugate = Fallthrough<c10::DispatchKey::Conjugate>;

TORCH_LIBRARY_FRAGMENT(gpuopt, m) {
  Ops::for_each([&]<typename Op>() {
    register_op<Op, Cpu<dot_cpu<Op>>, Meta<dot_meta<Op>>, Grad<DotBackward<Op>>,
                VmapAfterCast<dot_vmap<Op>, promoted, at::kCUDA>>(m);
  });
  OpList<Dot, Vdot>::for_each([&]<typename Op>() {
    register_op<Out<Op>, CopiesToOut<checked<Op>, dot_cpu<Op>, dot_meta<Op>>, ReadsConjugate>(m);
  });
  OpList<Dot, Vdot, DotRows>::for_each([&]<typename Op>() { impl<Op, ReadsConjugate>(m); });
}

}  // namespace
}  // namespace gpuopt::dot
