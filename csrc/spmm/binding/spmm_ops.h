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

// Attention of rows to columns, as AttentionProblem: left (M, H, D), right (K, H, D) in the product
// form, left (M, H), right (K, H) in the additive form, value (K, H, F) and bias (E, H) -> out (M,
// H, F) and the log of the sums of exp(score), (M, H). The second result is zeros where the
// operator is a composition of others.
struct GraphAttention {
  using Result = std::tuple<Tensor, Tensor>;
  static constexpr std::string_view kSchema =
      "_graph_attention(Tensor ptr, Tensor index, Tensor? entry, Tensor left, Tensor right, "
      "Tensor value, Tensor? bias, float factor, Tensor? t_ptr=None, Tensor? t_index=None, "
      "Tensor? t_entry=None) -> (Tensor, Tensor)";
  const Tensor &ptr, &index;
  const TensorOption& entry;
  const Tensor &left, &right, &value;
  const TensorOption& bias;
  double factor;
  const TensorOption &t_ptr, &t_index, &t_entry;
};

// What the rows know of the gradient: the gradient of left, and for each entry and head its weight
// and the gradient of its score, (E, H).
struct GraphAttentionBackward {
  using Result = std::tuple<Tensor, Tensor, Tensor>;
  static constexpr std::string_view kSchema =
      "_graph_attention_backward(Tensor grad, Tensor out, Tensor log_sum, Tensor ptr, Tensor "
      "index, "
      "Tensor? entry, Tensor left, Tensor right, Tensor value, Tensor? bias, float factor) -> "
      "(Tensor, Tensor, Tensor)";
  const Tensor &grad, &out, &log_sum, &ptr, &index;
  const TensorOption& entry;
  const Tensor &left, &right, &value;
  const TensorOption& bias;
  double factor;
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

// The transpose of a matrix that is multiplied again and again. `kept` is a vector of the dtype of
// ptr: a Fingerprint of spmm_transpose.h, zero at first, then t_ptr, t_index and t_entry. They are
// made by the call that says is_new, and made again by a later call if ptr and index hold other
// numbers than in the last one. `changes` is the address of an int64 that counts these calls, in
// memory of the host that kernels can write, or 0.
struct TransposeKept {
  using Result = Tensor&;
  static constexpr std::string_view kSchema =
      "_transpose_kept(Tensor(a!) kept, Tensor ptr, Tensor index, int columns, bool is_new, "
      "int changes=0) -> Tensor(a!)";
  Tensor& kept;
  const Tensor &ptr, &index;
  int64_t columns;
  bool is_new;
  int64_t changes;
};

// Refuses other numbers than in the first call with `state`, which is a Fingerprint as int64
// numbers, zero at first. On CUDA a device-side assertion fails.
struct SameNumbers {
  using Result = Tensor&;
  static constexpr std::string_view kSchema =
      "_same_numbers(Tensor(a!) state, Tensor numbers) -> Tensor(a!)";
  Tensor& state;
  const Tensor& numbers;
};

}  // namespace gpuopt::spmm
