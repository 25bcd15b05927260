// Products of sparse matrices in layout CSR, or CSC, and dense ones, at the key of these layouts:
//
//   A @ x, torch.mm          mm       of a CSC matrix: the gradient of x
//   torch.sparse.mm, addmm   addmm    torch.sparse.mm calls it with a matrix of zeros and beta=0
//   torch.sparse.mm(a, b, reduce)     _sparse_mm_reduce_impl, for which ATen has no CUDA kernel
//   sampled_addmm            sparse_sampled_addmm, which is also the gradient of the values
#pragma once

#include <ATen/ExpandUtils.h>
#include <ATen/ops/_sparse_mm_reduce_impl_backward_ops.h>
#include <ATen/ops/_sparse_mm_reduce_impl_ops.h>
#include <ATen/ops/addmm_ops.h>
#include <ATen/ops/mm_ops.h>
#include <ATen/ops/sparse_sampled_addmm_ops.h>

#include <array>
#include <tuple>

#include "index_add/binding/index_add_ops.h"
#include "override/policy.h"
#include "override/segment.h"
#include "override/transposes.h"

namespace gpuopt::overriding {

inline bool is_csr(const Tensor& tensor) {
  return tensor.defined() && tensor.layout() == at::kSparseCsr;
}
inline bool is_csc(const Tensor& tensor) {
  return tensor.defined() && tensor.layout() == at::kSparseCsc;
}
inline bool is_dense(const Tensor& tensor) {
  return tensor.defined() && tensor.layout() == at::kStrided;
}

// Whether kernels can read a matrix without batches or blocks. It may have no entries.
inline bool is_readable(const Tensor& matrix) {
  if (!is_csr(matrix) && !is_csc(matrix)) return false;
  const SparseMembers members(matrix);
  const auto is_vector = [](const Tensor& tensor) {
    return tensor.defined() && tensor.dim() == 1 && !tensor.is_neg() && has_memory(tensor);
  };
  return matrix.dim() == 2 && is_vector(members.ptr) && is_vector(members.index) &&
         is_vector(members.value) && is_index(members.ptr) && members.ptr.numel() > 0 &&
         members.index.scalar_type() == members.ptr.scalar_type() &&
         on_device_of(members.value, {members.ptr, members.index});
}

// Whether a dense matrix has these sizes, and the dtype and device of a sparse one.
inline bool fits(const Tensor& dense, int64_t rows, int64_t columns, const Tensor& matrix) {
  return is_dense(dense) && dense.dim() == 2 && dense.size(0) == rows && dense.size(1) == columns &&
         dense.scalar_type() == matrix.scalar_type() && dense.device() == matrix.device() &&
         !dense.is_conj() && !dense.is_neg() && has_memory(dense);
}

inline int64_t entries_of(const Tensor& matrix) { return SparseMembers(matrix).index.numel(); }

// Calls f(ptr, index, entry, value) with the rows of a matrix.
template <typename F>
Tensor with_rows(c10::DispatchKeySet key, const Tensor& matrix, F f) {
  const SparseMembers members(matrix);
  const TensorOption none, value = members.value;
  if (is_csr(matrix)) {
    spmm::Structures();  // frees what was kept of matrices that are gone
    return f(members.ptr, TensorOption(members.index), none, value);
  }
  const spmm::TransposedRows rows = transpose_of(key, members, matrix.size(0));
  return f(rows.ptr, TensorOption(rows.index), TensorOption(rows.entry), value);
}

// matrix @ dense, or another reduction of the products of each row.
inline Tensor product(c10::DispatchKeySet key, const Tensor& matrix, const Tensor& dense,
                      std::string_view reduce = "sum") {
  const TensorOption none;
  return with_rows(key, matrix, [&](const Tensor& ptr, const auto&... rows) {
    return redispatch(spmm::Spmm{ptr, rows..., dense, reduce, none, none, none}, key);
  });
}

// matrix @ dense in float32 or float64.
inline Tensor wide_product(c10::DispatchKeySet key, const Tensor& matrix, const Tensor& dense) {
  return with_rows(key, matrix, [&](const Tensor& ptr, const auto&... rows) {
    return redispatch(spmm::SpmmWide{ptr, rows..., dense}, key);
  });
}

// Whether alpha * product + beta * self is the product.
inline bool is_plain_product(const at::Scalar& beta, const at::Scalar& alpha) {
  return alpha.toDouble() == 1 && beta.toDouble() == 0;
}

// alpha * sums + beta * self in the dtype of self, rounded once. `sums` is new and may be wider.
inline Tensor scaled_sum(Tensor sums, const at::Scalar& alpha, const Tensor& self,
                         const at::Scalar& beta) {
  if (alpha.toDouble() != 1) sums.mul_(alpha);
  if (beta.toDouble() == 0) return sums.to(self.scalar_type());  // self may hold NaN
  Tensor result = sums.scalar_type() == self.scalar_type()
                      ? sums
                      : at::empty(sums.sizes(), sums.options().dtype(self.scalar_type()));
  return at::add_out(result, sums, self, beta);
}

// A matrix with new values and copies of the index tensors, as ATen makes it.
inline Tensor with_values(const Tensor& matrix, const Tensor& values) {
  const SparseMembers members(matrix);
  return at::_sparse_compressed_tensor_unsafe(members.ptr.clone(), members.index.clone(), values,
                                              matrix.sizes(),
                                              values.options().layout(at::kSparseCsr));
}

// ---------------------------------------------------------------- mm, addmm

struct SparseMm {
  using Aten = at::_ops::mm;
  static constexpr Operator kOperator = operator_named("mm");
  static constexpr bool kSparseCsr = true;

  static Reason decide(const Tensor& matrix, const Tensor& dense) {
    if (!is_readable(matrix) || !is_dense(dense) || dense.dim() != 2) return Reason::kUnsupported;
    if (!is_measured(matrix.scalar_type())) return Reason::kDtype;
    const int64_t entries = entries_of(matrix), features = dense.size(1);
    if (!fits(dense, matrix.size(1), features, matrix)) return Reason::kUnsupported;
    return unless_always([&] {
      return policy::sparse_product(entries, features, static_cast<int64_t>(dense.element_size()));
    });
  }
  static Tensor run(c10::DispatchKeySet key, const Tensor& self, const Tensor& mat2) {
    return product(key, self, mat2);
  }
};

struct SparseAddmm {
  using Aten = at::_ops::addmm;
  static constexpr Operator kOperator = operator_named("addmm");
  static constexpr bool kSparseCsr = true;

  static Reason decide(const Tensor& self, const Tensor& mat1, const Tensor& mat2,
                       const at::Scalar& beta, const at::Scalar& alpha) {
    const Reason known = SparseMm::decide(mat1, mat2);
    if (known != Reason::kTaken) return known;
    const bool fit = is_dense(self) && is_plain(self) && self.scalar_type() == mat1.scalar_type() &&
                     self.device() == mat1.device() && is_simple(beta) && is_simple(alpha) &&
                     at::is_expandable_to(self.sizes(), {mat1.size(0), mat2.size(1)});
    if (!fit) return Reason::kUnsupported;
    if (is_plain_product(beta, alpha)) return Reason::kTaken;
    return unless_always([&] {
      return policy::sparse_sum(entries_of(mat1), mat2.size(1),
                                static_cast<int64_t>(mat2.element_size()));
    });
  }
  static Tensor run(c10::DispatchKeySet key, const Tensor& self, const Tensor& mat1,
                    const Tensor& mat2, const at::Scalar& beta, const at::Scalar& alpha) {
    if (is_plain_product(beta, alpha)) return product(key, mat1, mat2);
    return scaled_sum(wide_product(key, mat1, mat2), alpha, self, beta);
  }
};

struct SparseAddmmOut : SparseAddmm {
  using Aten = at::_ops::addmm_out;

  static Reason decide(const Tensor& self, const Tensor& mat1, const Tensor& mat2,
                       const at::Scalar& beta, const at::Scalar& alpha, const Tensor& out) {
    const Reason known = SparseAddmm::decide(self, mat1, mat2, beta, alpha);
    if (known != Reason::kTaken) return known;
    const std::array<int64_t, 2> sizes{mat1.size(0), mat2.size(1)};
    const SparseMembers members(mat1);
    const bool is_free = is_dense(out) &&
                         is_destination(out, sizes, mat2.scalar_type(), {mat2, members.value}) &&
                         (out.is_same(self) || !out.is_alias_of(self));
    return is_free ? Reason::kTaken : Reason::kUnsupported;
  }
  static Tensor& run(c10::DispatchKeySet key, const Tensor& self, const Tensor& mat1,
                     const Tensor& mat2, const at::Scalar& beta, const at::Scalar& alpha,
                     Tensor& out) {
    return out.copy_(SparseAddmm::run(key, self, mat1, mat2, beta, alpha));
  }
};

// ---------------------------------------------------------------- sampled_addmm

struct SparseSampledAddmm {
  using Aten = at::_ops::sparse_sampled_addmm;
  static constexpr Operator kOperator = operator_named("sparse_sampled_addmm");
  static constexpr bool kSparseCsr = true;

  static Reason decide(const Tensor& self, const Tensor& mat1, const Tensor& mat2,
                       const at::Scalar& beta, const at::Scalar& alpha) {
    if (!is_csr(self) || !is_readable(self) || !is_dense(mat1) || mat1.dim() != 2) {
      return Reason::kUnsupported;
    }
    if (!is_measured(self.scalar_type())) return Reason::kDtype;
    const int64_t entries = entries_of(self), features = mat1.size(1);
    const bool fit = fits(mat1, self.size(0), features, self) &&
                     fits(mat2, features, self.size(1), self) && is_simple(beta) &&
                     is_simple(alpha);
    if (!fit) return Reason::kUnsupported;
    return unless_always([&] {
      return policy::sparse_product(entries, features, static_cast<int64_t>(mat1.element_size()));
    });
  }
  static Tensor run(c10::DispatchKeySet key, const Tensor& self, const Tensor& mat1,
                    const Tensor& mat2, const at::Scalar& beta, const at::Scalar& alpha) {
    const SparseMembers members(self);
    const TensorOption none, index = members.index;
    const auto products = [&](const Tensor& rows, const Tensor& columns) {
      return redispatch(
          spmm::Sddmm{members.ptr, index, none, rows, columns, false, none, none, none}, key);
    };
    if (is_plain_product(beta, alpha)) return with_values(self, products(mat1, mat2.t()));
    const auto wide = spmm::compute_type(mat1);
    const Tensor values = products(mat1.to(wide), mat2.t().to(wide));
    return with_values(self, scaled_sum(values, alpha, members.value, beta));
  }
};

// ---------------------------------------------------------------- products with a reduction

// The words that ATen allows, as gpuopt's.
inline std::optional<std::string_view> product_reduction_of(std::string_view reduce) {
  const std::optional<std::string_view> word = reduction_of(reduce);
  return word == "prod" ? std::nullopt : word;
}

inline bool is_reducible(const Tensor& self, const Tensor& other, std::string_view reduce) {
  return is_csr(self) && is_readable(self) && is_real_float(self.scalar_type()) &&
         is_dense(other) && other.dim() == 2 && fits(other, self.size(1), other.size(1), self) &&
         product_reduction_of(reduce).has_value();
}

#define GPUOPT_TAKES                                                                              \
  "a CSR matrix of float16, bfloat16, float32 or float64 and a dense matrix with its columns as " \
  "rows, its dtype and its device, and reduce \"sum\", \"mean\", \"amax\" or \"amin\""

struct SparseMmReduce {
  using Aten = at::_ops::_sparse_mm_reduce_impl;
  using Result = std::tuple<Tensor, Tensor>;
  static constexpr Operator kOperator = operator_named("_sparse_mm_reduce_impl");
  static constexpr bool kSparseCsr = true;
  static constexpr const char* kTakes = GPUOPT_TAKES;

  static Reason decide(const Tensor& self, const Tensor& other, std::string_view reduce) {
    return is_reducible(self, other, reduce) ? Reason::kTaken : Reason::kUnsupported;
  }

  // The second result has the entry that each maximum is from, and the number of entries for rows
  // without any. It is empty if no gradient needs it.
  static Result run(c10::DispatchKeySet key, const Tensor& self, const Tensor& other,
                    std::string_view reduce) {
    const SparseMembers members(self);
    const std::string_view word = *product_reduction_of(reduce);
    const int64_t entries = members.index.numel();
    const std::array<int64_t, 2> sizes{self.size(0), other.size(1)};
    const Tensor unused = at::empty({0}, members.index.options());
    if (entries == 0 || sizes[0] == 0 || sizes[1] == 0) {
      return {at::zeros(sizes, other.options()), unused};
    }
    const bool for_gradient =
        at::GradMode::is_enabled() && (self.requires_grad() || other.requires_grad());
    if (!is_extremum(word) || !for_gradient) return {product(key, self, other, word), unused};
    const TensorOption none, index = members.index, value = members.value;
    auto [result, arg] =
        redispatch(spmm::SpmmArg{members.ptr, index, none, value, other, word}, key);
    return {result, arg.masked_fill_(arg.lt(0), entries)};
  }
};

struct SparseMmReduceBackward {
  using Aten = at::_ops::_sparse_mm_reduce_impl_backward;
  using Result = std::tuple<Tensor, Tensor>;
  static constexpr Operator kOperator = operator_named("_sparse_mm_reduce_impl_backward");
  static constexpr bool kSparseCsr = true;
  static constexpr const char* kTakes = GPUOPT_TAKES;

  static Reason decide(const Tensor& self, const Tensor& grad, const Tensor& other,
                       std::string_view reduce, const Tensor& arg, std::array<bool, 2>) {
    const bool fit = is_reducible(self, other, reduce) && is_dense(grad) && grad.dim() == 2 &&
                     fits(grad, self.size(0), other.size(1), self);
    if (!fit) return Reason::kUnsupported;
    const bool needs_arg =
        is_extremum(*product_reduction_of(reduce)) && entries_of(self) > 0 && grad.numel() > 0;
    const bool has_arg = !needs_arg || (is_dense(arg) && arg.sizes() == grad.sizes());
    return has_arg ? Reason::kTaken : Reason::kUnsupported;
  }

  static Result run(c10::DispatchKeySet key, const Tensor& self, const Tensor& grad,
                    const Tensor& other, std::string_view reduce, const Tensor& arg,
                    std::array<bool, 2> mask) {
    const SparseMembers members(self);
    const std::string_view word = *product_reduction_of(reduce);
    Tensor of_values, of_other;
    if (members.index.numel() == 0 || grad.numel() == 0) {
      if (mask[0]) of_values = at::zeros_like(members.value);
      if (mask[1]) of_other = at::zeros(other.sizes(), other.options());
    } else if (is_extremum(word)) {
      if (mask[0]) of_values = winners(key, members, grad, other, arg);
      if (mask[1]) of_other = selected(key, self, grad, arg);
    } else {
      const Tensor rows = word == "mean" ? means(grad, members.ptr) : grad;
      if (mask[0]) of_values = sampled(key, members, rows, other);
      if (mask[1]) of_other = transposed(key, self, rows);
    }
    return {of_values.defined() ? with_values(self, of_values) : of_values, of_other};
  }

 private:
  static Tensor means(const Tensor& grad, const Tensor& ptr) {
    return grad.div(counts_of(ptr, 2).clamp_min(1));
  }

  static Tensor sampled(c10::DispatchKeySet key, const SparseMembers& members, const Tensor& rows,
                        const Tensor& other) {
    const TensorOption none, index = members.index;
    return redispatch(spmm::Sddmm{members.ptr, index, none, rows, other, false, none, none, none},
                      key);
  }

  static Tensor transposed(c10::DispatchKeySet key, const Tensor& self, const Tensor& rows) {
    const spmm::TransposedRows of = transpose_of(key, SparseMembers(self), self.size(1));
    const TensorOption none, index = of.index, entry = of.entry, value = SparseMembers(self).value;
    return redispatch(spmm::Spmm{of.ptr, index, entry, value, rows, "sum", none, none, none}, key);
  }

  static Tensor selected(c10::DispatchKeySet key, const Tensor& self, const Tensor& grad,
                         const Tensor& arg) {
    const spmm::TransposedRows of = transpose_of(key, SparseMembers(self), self.size(1));
    const TensorOption index = of.index, entry = of.entry, value = SparseMembers(self).value;
    return redispatch(spmm::SpmmSelected{of.ptr, index, entry, value, grad, arg}, key);
  }

  // For each entry, the sum of grad * other over the results that are from it, in a fixed order.
  static Tensor winners(c10::DispatchKeySet key, const SparseMembers& members, const Tensor& grad,
                        const Tensor& other, const Tensor& arg) {
    const auto wide = grad.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
    const int64_t entries = members.index.numel();
    const Tensor none = arg.ge(entries);
    const Tensor entry = arg.clamp_max(entries - 1).reshape({-1});
    const Tensor columns = members.index.index_select(0, entry).to(at::kLong).view(arg.sizes());
    const Tensor products =
        other.gather(0, columns).to(wide).mul_(grad).masked_fill_(none, 0).reshape({-1});
    const Tensor zeros = at::zeros({entries}, products.options());
    return redispatch(gpuopt::IndexAdd{zeros, 0, entry, products, 1, "deterministic"}, key)
        .to(grad.scalar_type());
  }
};
#undef GPUOPT_TAKES

}  // namespace gpuopt::overriding
