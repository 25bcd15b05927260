// Matrices in formulas of derivatives, and in the nodes that compute them.
#pragma once

#include <ATen/ATen.h>

#include <array>

#include "binding/grad_node.h"
#include "spmm/binding/spmm_reference.h"

namespace gpuopt::spmm {

// A matrix, or what is undefined if it is not given.
struct Sparse {
  Tensor ptr, index, entry;

  // The transpose, made here.
  Sparse transposed(const SymInt& columns) const {
    Tensor own = index;
    if (!own.defined()) own = at::arange(at::Scalar(columns), ptr.options());
    auto [t_ptr, t_index, t_entry] = call(Transpose{ptr, own, columns});
    if (entry.defined()) t_entry = entry.index_select(0, t_entry);
    return {t_ptr, t_index, t_entry};
  }
};

// A matrix and its transpose in a node.
class SavedMatrix {
 public:
  SavedMatrix() = default;

  template <typename Op>
  SavedMatrix(const Op& op, const Shape& shape) : columns_(shape.columns) {
    save(1, value_or_undefined(op.index));
    save(2, value_or_undefined(op.entry));
    if constexpr (requires { op.t_ptr; }) {
      save(3, value_or_undefined(op.t_ptr));
      save(4, value_or_undefined(op.t_index));
      save(5, value_or_undefined(op.t_entry));
    }
    // The gradient of a maximum reads ptr only to make what is not given.
    if constexpr (requires { op.reduce; }) {
      if (is_extremum(op.reduce) && given_[1] && given_[3]) return;
    }
    save(0, op.ptr);
  }

  Sparse own() const { return {unpacked(0), unpacked(1), unpacked(2)}; }
  Sparse transpose(const Sparse& own) const {
    if (!given_[3]) return own.transposed(columns_);
    return {unpacked(3), unpacked(4), unpacked(5)};
  }
  bool has_transpose() const { return given_[3]; }
  void reset() {
    for (torch::autograd::SavedVariable& tensor : saved_) tensor.reset_data();
  }

 private:
  void save(size_t i, const Tensor& tensor) {
    given_[i] = tensor.defined();
    if (given_[i]) saved_[i] = {tensor, /*is_output=*/false};
  }
  Tensor unpacked(size_t i) const { return given_[i] ? saved_[i].unpack() : Tensor(); }

  std::array<torch::autograd::SavedVariable, 6> saved_;
  std::array<bool, 6> given_{};
  SymInt columns_ = 0;
};

template <typename Op>
Sparse matrix_of(const Op& op) {
  return {op.ptr, value_or_undefined(op.index), value_or_undefined(op.entry)};
}
template <typename Op>
Sparse transpose_of(const Op& op) {
  return {value_or_undefined(op.t_ptr), value_or_undefined(op.t_index),
          value_or_undefined(op.t_entry)};
}

// A product with dense rows.
inline Tensor product(const Sparse& a, const Tensor& value, const Tensor& dense,
                      const Sparse& transpose, std::string_view reduce = "sum") {
  return call(Spmm{a.ptr, if_defined(a.index), if_defined(a.entry), if_defined(value), dense,
                   reduce, if_defined(transpose.ptr), if_defined(transpose.index),
                   if_defined(transpose.entry)});
}

}  // namespace gpuopt::spmm
