// Dense products of float32 matrices in 3xTF32, on request: mm, addmm, bmm and their out= forms.
// matmul and linear call these.
#pragma once

#include <ATen/ops/addmm_ops.h>
#include <ATen/ops/bmm_ops.h>
#include <ATen/ops/mm_ops.h>

#include <functional>
#include <optional>
#include <utility>

#include "matmul/binding/matmul_ops.h"
#include "override/predicates.h"

namespace gpuopt::overriding {

// The plan knows more sizes for which cuBLAS is faster.
inline Reason decide_dense_product(const Tensor& a, const Tensor& b, int64_t dims) {
  if (!is_plain(a) || !is_plain(b) || a.layout() != at::kStrided || b.layout() != at::kStrided ||
      a.dim() != dims || b.dim() != dims || !on_device_of(a, {b})) {
    return Reason::kUnsupported;
  }
  if (a.scalar_type() != at::kFloat || b.scalar_type() != at::kFloat) return Reason::kDtype;
  const bool fit = a.size(-1) == b.size(-2) && (dims == 2 || a.size(0) == b.size(0));
  return fit ? Reason::kTaken : Reason::kUnsupported;
}

// Nothing if cuBLAS is faster.
inline std::optional<Tensor> dense_product(c10::DispatchKeySet key, const Tensor& a,
                                           const Tensor& b) {
  Tensor result = redispatch(MatmulByPath{a, b}, key);
  return result.defined() ? std::optional<Tensor>(std::move(result)) : std::nullopt;
}

inline Reason decide_dense_out(const Tensor& out, const Tensor& a, const Tensor& b) {
  const int64_t dims = a.dim();
  const Reason known = decide_dense_product(a, b, dims);
  if (known != Reason::kTaken) return known;
  at::DimVector sizes(a.sizes());
  sizes.back() = b.size(-1);
  return is_destination(out, sizes, at::kFloat, {a, b}) ? Reason::kTaken : Reason::kUnsupported;
}

inline std::optional<std::reference_wrapper<Tensor>> copied_to(Tensor& out,
                                                               const std::optional<Tensor>& from) {
  if (!from.has_value()) return std::nullopt;
  return out.copy_(*from);
}

// mm and bmm.
template <typename AtenOp, int64_t kDims>
struct DenseProduct {
  using Aten = AtenOp;
  static constexpr Operator kOperator = operator_named("matmul");
  static constexpr bool kMayPassOn = true;

  static Reason decide(const Tensor& self, const Tensor& mat2) {
    return decide_dense_product(self, mat2, kDims);
  }
  template <typename Rest>
  static std::optional<Tensor> attempt(c10::DispatchKeySet key, const Rest&, const Tensor& self,
                                       const Tensor& mat2) {
    return dense_product(key, self, mat2);
  }
};
using DenseMm = DenseProduct<at::_ops::mm, 2>;
using DenseBmm = DenseProduct<at::_ops::bmm, 3>;

template <typename AtenOp, int64_t kDims>
struct DenseProductOut {
  using Aten = AtenOp;
  static constexpr Operator kOperator = operator_named("matmul");
  static constexpr bool kMayPassOn = true;

  static Reason decide(const Tensor& self, const Tensor& mat2, const Tensor& out) {
    return self.dim() == kDims ? decide_dense_out(out, self, mat2) : Reason::kUnsupported;
  }
  template <typename Rest>
  static std::optional<std::reference_wrapper<Tensor>> attempt(c10::DispatchKeySet key, const Rest&,
                                                               const Tensor& self,
                                                               const Tensor& mat2, Tensor& out) {
    return copied_to(out, dense_product(key, self, mat2));
  }
};
using DenseMmOut = DenseProductOut<at::_ops::mm_out, 2>;
using DenseBmmOut = DenseProductOut<at::_ops::bmm_out, 3>;

inline Reason decide_dense_addmm(const Tensor& self, const Tensor& a, const Tensor& b,
                                 const at::Scalar& beta, const at::Scalar& alpha) {
  const Reason known = decide_dense_product(a, b, 2);
  if (known != Reason::kTaken) return known;
  const auto is_real = [](const at::Scalar& x) {
    return !x.isComplex() && !x.isBoolean() && !x.isSymbolic();
  };
  const bool fit = is_plain(self) && self.layout() == at::kStrided &&
                   self.scalar_type() == at::kFloat && on_device_of(self, {a}) && is_real(beta) &&
                   is_real(alpha) && alpha.toDouble() != 0 &&
                   at::is_expandable_to(self.sizes(), {a.size(0), b.size(1)});
  return fit ? Reason::kTaken : Reason::kUnsupported;
}

struct DenseAddmm {
  using Aten = at::_ops::addmm;
  static constexpr Operator kOperator = operator_named("matmul");
  static constexpr bool kMayPassOn = true;

  static Reason decide(const Tensor& self, const Tensor& mat1, const Tensor& mat2,
                       const at::Scalar& beta, const at::Scalar& alpha) {
    return decide_dense_addmm(self, mat1, mat2, beta, alpha);
  }
  template <typename Rest>
  static std::optional<Tensor> attempt(c10::DispatchKeySet key, const Rest&, const Tensor& self,
                                       const Tensor& mat1, const Tensor& mat2,
                                       const at::Scalar& beta, const at::Scalar& alpha) {
    std::optional<Tensor> result = dense_product(key, mat1, mat2);
    if (!result.has_value()) return std::nullopt;
    if (alpha.toDouble() != 1) result->mul_(alpha);
    if (beta.toDouble() != 0) result->add_(self, beta);  // else self may hold NaN
    return result;
  }
};

struct DenseAddmmOut {
  using Aten = at::_ops::addmm_out;
  static constexpr Operator kOperator = operator_named("matmul");
  static constexpr bool kMayPassOn = true;

  static Reason decide(const Tensor& self, const Tensor& mat1, const Tensor& mat2,
                       const at::Scalar& beta, const at::Scalar& alpha, const Tensor& out) {
    const Reason known = decide_dense_addmm(self, mat1, mat2, beta, alpha);
    if (known != Reason::kTaken) return known;
    const bool is_free = out.is_same(self) || !out.is_alias_of(self);
    return is_free ? decide_dense_out(out, mat1, mat2) : Reason::kUnsupported;
  }
  template <typename Rest>
  static std::optional<std::reference_wrapper<Tensor>> attempt(
      c10::DispatchKeySet key, const Rest& rest, const Tensor& self, const Tensor& mat1,
      const Tensor& mat2, const at::Scalar& beta, const at::Scalar& alpha, Tensor& out) {
    return copied_to(out, DenseAddmm::attempt(key, rest, self, mat1, mat2, beta, alpha));
  }
};

}  // namespace gpuopt::overriding
