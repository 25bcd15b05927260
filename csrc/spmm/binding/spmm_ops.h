// Sparse products as operators of binding/op.h. A matrix is (ptr, index, entry), as in
// spmm_problem.h. Its transpose is (t_ptr, t_index, t_entry). Both read the same values.
#pragma once

#include <tuple>

#include "binding/op.h"
#include "binding/optional.h"

namespace gpuopt::spmm {

using at::Tensor;
using c10::SymInt;

// dense (..., K, N) without values or with (E) -> (..., M, N), and (K) -> (M). With values (E, H):
// (..., K, H, F) -> (..., M, H, F).
struct Spmm {
  using Result = Tensor;
  static constexpr std::string_view kSchema =
      "spmm(Tensor ptr, Tensor? index, Tensor? entry, Tensor? value, Tensor dense, "
      "str reduce=\"sum\", Tensor? t_ptr=None, Tensor? t_index=None, Tensor? t_entry=None) -> "
      "Tensor";
  const Tensor& ptr;
  const TensorOption &index, &entry, &value;
  const Tensor& dense;
  std::string_view reduce;
  const TensorOption &t_ptr, &t_index, &t_entry;
};

// The sum in the type that it is computed in, float32 or float64. Whoever scales or adds to it
// rounds once. It has no derivatives.
struct SpmmWide {
  using Result = Tensor;
  static constexpr std::string_view kSchema =
      "_spmm_wide(Tensor ptr, Tensor? index, Tensor? entry, Tensor? value, Tensor dense) -> Tensor";
  const Tensor& ptr;
  const TensorOption &index, &entry, &value;
  const Tensor& dense;
};

// A maximum or minimum, and where in the values each result is from. -1: the row has no entries.
struct SpmmArg {
  using Result = std::tuple<Tensor, Tensor>;
  static constexpr std::string_view kSchema =
      "_spmm_arg(Tensor ptr, Tensor? index, Tensor? entry, Tensor? value, Tensor dense, "
      "str reduce) -> (Tensor, Tensor)";
  const Tensor& ptr;
  const TensorOption &index, &entry, &value;
  const Tensor& dense;
  std::string_view reduce;
};

// A sum of the entries that `selected` names, for the gradient of a maximum: entry e counts where
// selected[..., index[e], n] is its position in the values. `selected` has the shape of dense.
struct SpmmSelected {
  using Result = Tensor;
  static constexpr std::string_view kSchema =
      "_spmm_selected(Tensor ptr, Tensor? index, Tensor? entry, Tensor? value, Tensor dense, "
      "Tensor selected) -> Tensor";
  const Tensor& ptr;
  const TensorOption &index, &entry, &value;
  const Tensor &dense, &selected;
};

// a (M, N), b (K, N) -> (E), or with heads: a (M, H, F), b (K, H, F) -> (E, H).
struct Sddmm {
  using Result = Tensor;
  static constexpr std::string_view kSchema =
      "sddmm(Tensor ptr, Tensor? index, Tensor? entry, Tensor a, Tensor b, bool heads=False, "
      "Tensor? t_ptr=None, Tensor? t_index=None, Tensor? t_entry=None) -> Tensor";
  const Tensor& ptr;
  const TensorOption &index, &entry;
  const Tensor &a, &b;
  bool heads;
  const TensorOption &t_ptr, &t_index, &t_entry;
};

// The transpose of a matrix without `entry`: t_ptr (columns + 1), t_index (E) and t_entry (E). The
// entries of a column stay in order.
struct Transpose {
  using Result = std::tuple<Tensor, Tensor, Tensor>;
  static constexpr std::string_view kSchema =
      "_transpose(Tensor ptr, Tensor index, SymInt columns) -> (Tensor, Tensor, Tensor)";
  const Tensor &ptr, &index;
  SymInt columns;
};

// Reductions of bags of rows, as at::_embedding_bag: the reductions, the bag of each entry, the
// number of entries of each bag that count, and of maxima the index that each is from. `mode` is
// 0 for sums, 1 for means, 2 for maxima. The first bag begins at 0, and the last one ends with the
// entries, whatever the offsets are. Callers check the operands.
struct EmbeddingBag {
  using Result = std::tuple<Tensor, Tensor, Tensor, Tensor>;
  static constexpr std::string_view kSchema =
      "_embedding_bag(Tensor weight, Tensor index, Tensor offsets, Tensor? value, int mode, "
      "bool include_last_offset, int padding_idx) -> (Tensor, Tensor, Tensor, Tensor)";
  const Tensor &weight, &index, &offsets;
  const TensorOption& value;
  int64_t mode;
  bool include_last_offset;
  int64_t padding_idx;

  SymInt bags() const { return offsets.sym_size(0) - (include_last_offset ? 1 : 0); }
};

}  // namespace gpuopt::spmm
