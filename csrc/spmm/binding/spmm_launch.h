// For the CUDA bindings: tensors as the operands of problems, and launches of their plans.
#pragma once

#include <ATen/ATen.h>

#include "rows/binding/rows_launch.h"
#include "spmm/binding/spmm_check.h"
#include "spmm/spmm.h"

namespace gpuopt::spmm {

inline const void* data_of(const Tensor& tensor) {
  return tensor.defined() ? tensor.const_data_ptr() : nullptr;
}

inline Tensor contiguous(const TensorOption& tensor) {
  return is_given(tensor) ? tensor->contiguous() : Tensor();
}

inline int64_t known(const SymInt& size) { return size.guard_int(__FILE__, __LINE__); }

// A matrix, and the tensors that it points to.
struct MatrixOperand {
  template <typename Op>
  MatrixOperand(const Op& op, const Shape& shape)
      : ptr(op.ptr.contiguous()), index(contiguous(op.index)), entry(contiguous(op.entry)) {
    check_memory(name_of<Op>(), {{"ptr", ptr}, {"index", index}, {"entry", entry}});
    matrix.ptr = data_of(ptr);
    matrix.index = data_of(index);
    matrix.entry = data_of(entry);
    matrix.is_long = ptr.scalar_type() == at::kLong;
    matrix.rows = known(shape.rows);
    matrix.columns = known(shape.columns);
    matrix.entries = known(shape.entries);
    if constexpr (requires { op.t_ptr; }) {  // a gradient may read them
      for (const TensorOption* tensor : {&op.t_ptr, &op.t_index, &op.t_entry}) {
        if (is_given(*tensor)) check_memory(name_of<Op>(), {{"the transpose", **tensor}});
      }
    }
  }

  Tensor ptr, index, entry;
  Matrix matrix;
};

// Dense rows (batches, rows, features) as the kernels read them: a copy if the innermost dimension
// has gaps, or if the batches have no common stride.
struct RowsOperand {
  RowsOperand() = default;
  RowsOperand(const Tensor& dense, int64_t row_dim) {
    const auto sizes = dense.sizes();
    const auto product = [&](int64_t first, int64_t last) {
      return c10::multiply_integers(sizes.begin() + first, sizes.begin() + last);
    };
    tensor =
        dense.reshape({product(0, row_dim), sizes[row_dim], product(row_dim + 1, dense.dim())});
    if (tensor.stride(2) != 1 && tensor.size(2) != 1) tensor = tensor.contiguous();
    // The kernels only read what is an input.
    const int64_t batch = tensor.size(0) == 1 ? 0 : tensor.stride(0);
    rows = {const_cast<void*>(tensor.const_data_ptr()), tensor.stride(1), batch};
  }

  Tensor tensor;
  Rows rows;
};

// A result whose rows lie behind each other, (batches, rows, features).
inline Rows written(const Tensor& result, int64_t rows, int64_t features) {
  return {result.mutable_data_ptr(), features, rows * features};
}

}  // namespace gpuopt::spmm
