// Checks the arguments of sparse products. The CUDA, CPU and Meta kernels and the derivatives call
// these functions. What the numbers in ptr and index are is not checked: that would wait for the
// GPU. torch_ops.CSR checks them once.
#pragma once

#include <vector>

#include "binding/check.h"
#include "binding/plain.h"
#include "rows/binding/rows_reference.h"
#include "spmm/binding/spmm_ops.h"

namespace gpuopt::spmm {

using namespace rows;

// What a call is about. Sizes may be symbolic.
struct Shape {
  SymInt rows, columns, entries;
  int64_t row_dim = 0;  // the dimension of dense's rows, and of the result's
  bool has_heads = false;

  // The sizes of a result with the rows of the matrix.
  at::SymDimVector result(const Tensor& dense) const {
    at::SymDimVector sizes(dense.sym_sizes());
    sizes[row_dim] = rows;
    return sizes;
  }
};

inline bool is_same_size(const SymInt& one, const SymInt& other) {
  return TORCH_GUARD_OR_TRUE(one.sym_eq(other));
}

inline void check_floating(const char* op, NamedTensor argument) {
  const auto dtype = argument.tensor.scalar_type();
  TORCH_CHECK_TYPE(is_real_float(dtype), op, ": ", argument.name,
                   " must be floating-point: expected Half, BFloat16, Float or Double, got ",
                   dtype);
}

inline void check_like(const char* op, NamedTensor argument, NamedTensor first) {
  check_dtype_of(op, argument, first);
  check_device_of(op, argument, first);
}

// A vector of numbers of entries or columns. `size` is what it must have, if that is known.
inline void check_numbers(const char* op, NamedTensor argument, const Tensor& ptr, const char* what,
                          const std::optional<SymInt>& size) {
  const auto& [name, tensor] = argument;
  check_like(op, argument, {"ptr", ptr});
  TORCH_CHECK(tensor.dim() == 1 && (!size.has_value() || is_same_size(tensor.sym_size(0), *size)),
              op, ": ", name, " must be ", what, ": expected ",
              size.has_value() ? c10::str("shape [", *size, "]") : std::string("1 dimension"),
              ", got shape ", tensor.sym_sizes());
}

inline void check_ptr(const char* op, const Tensor& ptr) {
  check_index_dtype(op, "ptr", ptr.scalar_type());
  TORCH_CHECK(ptr.dim() == 1 && !is_known_zero(ptr.sym_size(0)), op,
              ": ptr must be (rows + 1): expected a vector of at least 1 number, got shape ",
              ptr.sym_sizes());
}

// Checks ptr, index and entry, and returns the number of entries. Without an index there are as
// many as columns.
inline SymInt check_matrix(const char* op, const Tensor& ptr, const TensorOption& index,
                           const TensorOption& entry, const SymInt& columns) {
  check_ptr(op, ptr);
  if (is_given(index)) check_numbers(op, {"index", *index}, ptr, "(entries)", std::nullopt);
  const SymInt entries = is_given(index) ? index->sym_size(0) : columns;
  if (is_given(entry)) check_numbers(op, {"entry", *entry}, ptr, "(entries)", entries);
  return entries;
}

template <typename Op>
void check_transpose(const char* op, const Op& call, const Shape& shape) {
  if (!is_given(call.t_ptr) && !is_given(call.t_index) && !is_given(call.t_entry)) return;
  // In the gradient, the transpose is the matrix of the call, which may have neither index nor
  // entry.
  TORCH_CHECK(is_given(call.t_ptr), op,
              ": t_ptr must be given with t_index or t_entry: expected a ", "tensor, got None");
  check_numbers(op, {"t_ptr", *call.t_ptr}, call.ptr, "(columns + 1)", shape.columns + 1);
  for (const auto& [name, tensor] :
       {std::pair{"t_index", &call.t_index}, {"t_entry", &call.t_entry}}) {
    if (is_given(*tensor))
      check_numbers(op, {name, **tensor}, call.ptr, "(entries)", shape.entries);
  }
}

inline bool is_extremum(std::string_view reduce) { return reduce == "max" || reduce == "min"; }

// A product with dense rows: Spmm, SpmmWide, SpmmArg or SpmmSelected.
template <typename Op>
Shape check(const Op& call) {
  const char* op = name_of<Op>();
  const Tensor& dense = call.dense;
  Shape shape;
  if constexpr (requires { call.reduce; }) {
    const bool has_arg = std::is_same_v<Op, SpmmArg>;
    TORCH_CHECK_VALUE(
        is_extremum(call.reduce) || (!has_arg && (call.reduce == "sum" || call.reduce == "mean")),
        op, ": reduce must be known: expected ", has_arg ? "" : "'sum', 'mean', ",
        "'max' or 'min', got '", call.reduce, "'");
  }
  check_floating(op, {"dense", dense});
  if (is_given(call.value)) {
    const Tensor& value = *call.value;
    check_like(op, {"value", value}, {"dense", dense});
    TORCH_CHECK(value.dim() == 1 || value.dim() == 2, op,
                ": value must be (entries) or (entries, heads): expected 1 or 2 dimensions, got "
                "shape ",
                value.sym_sizes());
    shape.has_heads = value.dim() == 2;
  }
  const int64_t least = shape.has_heads ? 3 : 1;
  TORCH_CHECK(dense.dim() >= least, op, ": dense must be ",
              shape.has_heads ? "(..., columns, heads, features), as value has heads"
                              : "(columns) or (..., columns, features)",
              ": expected at least ", least, " dimensions, got shape ", dense.sym_sizes());
  shape.row_dim = dense.dim() == 1 ? 0 : dense.dim() - (shape.has_heads ? 3 : 2);
  shape.columns = dense.sym_size(shape.row_dim);
  check_device_of(op, {"ptr", call.ptr}, {"dense", dense});
  shape.entries = check_matrix(op, call.ptr, call.index, call.entry, shape.columns);
  shape.rows = call.ptr.sym_size(0) - 1;
  if (is_given(call.value)) {
    TORCH_CHECK(is_same_size(call.value->sym_size(0), shape.entries), op,
                ": value must have one number or row for each entry: expected ", shape.entries,
                ", got shape ", call.value->sym_sizes());
  }
  if (shape.has_heads) {
    TORCH_CHECK(is_same_size(call.value->sym_size(1), dense.sym_size(-2)), op,
                ": dense must have the heads of value: expected ", call.value->sym_size(1),
                " in dimension -2, got shape ", dense.sym_sizes());
  }
  if constexpr (requires { call.t_ptr; }) check_transpose(op, call, shape);
  if constexpr (requires { call.selected; }) {
    check_like(op, {"selected", call.selected}, {"ptr", call.ptr});
    TORCH_CHECK(may_have_shape(call.selected, dense.sym_sizes()), op,
                ": selected must have the shape of dense: expected ", dense.sym_sizes(), ", got ",
                call.selected.sym_sizes());
  }
  return shape;
}

inline Shape check(const Sddmm& call) {
  const char* op = name_of<Sddmm>();
  const auto& [ptr, index, entry, a, b, heads, t_ptr, t_index, t_entry] = call;
  check_floating(op, {"a", a});
  check_like(op, {"b", b}, {"a", a});
  const int64_t dims = heads ? 3 : 2;
  const char* layout = heads ? ", heads, features)" : ", features)";
  TORCH_CHECK(a.dim() == dims, op, ": a must be (rows", layout, ": expected ", dims,
              " dimensions, got shape ", a.sym_sizes());
  bool fits = b.dim() == dims;
  for (int64_t d = 1; fits && d < dims; ++d) fits = is_same_size(b.sym_size(d), a.sym_size(d));
  TORCH_CHECK(fits, op, ": b must be (columns", layout, ", with the ",
              heads ? "heads and features" : "features", " of a: expected ", a.sym_sizes().slice(1),
              " after the first dimension, got shape ", b.sym_sizes());
  check_device_of(op, {"ptr", ptr}, {"a", a});
  Shape shape;
  shape.has_heads = heads;
  shape.columns = b.sym_size(0);
  shape.entries = check_matrix(op, ptr, index, entry, shape.columns);
  shape.rows = ptr.sym_size(0) - 1;
  TORCH_CHECK(is_same_size(a.sym_size(0), shape.rows), op,
              ": a must have the rows of the matrix: expected ", shape.rows, ", got shape ",
              a.sym_sizes());
  check_transpose(op, call, shape);
  return shape;
}

inline void check(const Transpose& call) {
  const char* op = name_of<Transpose>();
  check_ptr(op, call.ptr);
  check_numbers(op, {"index", call.index}, call.ptr, "(entries)", std::nullopt);
  TORCH_CHECK(TORCH_GUARD_OR_TRUE(call.columns.sym_ge(0)), op, ": columns must be 0 or more, got ",
              call.columns);
}

}  // namespace gpuopt::spmm
