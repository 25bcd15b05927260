// Checks the arguments of selective scans. The CUDA, CPU and Meta kernels and the derivatives all
// call these functions.
#pragma once

#include <vector>

#include "binding/check.h"
#include "selective_scan/binding/selective_scan_ops.h"
#include "selective_scan/selective_scan_problem.h"

namespace gpuopt::selective {

inline constexpr const char* kScanOp = "gpuopt::selective_scan";
inline constexpr const char* kUpdateOp = "gpuopt::selective_scan_update";

// `first` is the operand whose device the others must be on.
inline void check_operand(const char* op, NamedTensor operand, NamedTensor first) {
  const auto& [name, tensor] = operand;
  TORCH_CHECK_TYPE(!tensor.is_complex(), op, ": ", name,
                   " must be real: expected a floating-point dtype, got ", tensor.scalar_type());
  TORCH_CHECK_TYPE(is_real_float(tensor.scalar_type()), op, ": ", name,
                   " must be floating-point: expected float16, bfloat16, float32 or float64, got ",
                   tensor.scalar_type());
  check_device_of(op, operand, first);
}

inline void check_shape(const char* op, const char* name, const at::Tensor& tensor,
                        const char* layout, const std::vector<c10::SymInt>& sizes) {
  TORCH_CHECK(may_have_shape(tensor, sizes), op, ": ", name, " must be ", layout,
              ": expected shape ", c10::SymIntArrayRef(sizes), ", got ", tensor.sym_sizes());
}

inline void check_states(const char* op, const c10::SymInt& states) {
  TORCH_CHECK(
      TORCH_GUARD_OR_TRUE(states.sym_ge(1)) && TORCH_GUARD_OR_TRUE(states.sym_le(kMaxStates)), op,
      ": A must have 1 to ", kMaxStates, " states: expected a last dimension up to ", kMaxStates,
      ", got ", states);
}

inline void check_matrix(const SelectiveScan& in, const char* name, const at::Tensor& tensor) {
  const c10::SymInt batch = in.u.sym_size(0), channels = in.u.sym_size(1);
  const c10::SymInt length = in.u.sym_size(2), states = in.A.sym_size(1);
  if (tensor.dim() == 2) {
    check_shape(kScanOp, name, tensor, "(dim, n) if it is constant", {channels, states});
  } else if (tensor.dim() == 3) {
    check_shape(kScanOp, name, tensor, "(batch, n, length)", {batch, states, length});
  } else {
    TORCH_CHECK(tensor.dim() == 4, kScanOp, ": ", name,
                " must be (dim, n), (batch, n, length) or (batch, groups, n, length): expected 2, "
                "3 or 4 dimensions, got shape ",
                tensor.sym_sizes());
    const c10::SymInt groups = tensor.sym_size(1);
    check_shape(kScanOp, name, tensor, "(batch, groups, n, length)",
                {batch, groups, states, length});
    TORCH_CHECK(
        TORCH_GUARD_OR_TRUE(groups.sym_ge(1)) && TORCH_GUARD_OR_TRUE((channels % groups).sym_eq(0)),
        kScanOp, ": ", name, " must have groups that divide dim: expected a divisor of ", channels,
        ", got ", groups, " groups");
  }
}

inline void check_scan(const SelectiveScan& in) {
  const auto check = [&](const char* name, const at::Tensor& tensor) {
    check_operand(kScanOp, {name, tensor}, {"u", in.u});
  };
  check("u", in.u);
  check("delta", in.delta);
  check("A", in.A);
  check("B", in.B);
  check("C", in.C);
  TORCH_CHECK(in.u.dim() == 3, kScanOp,
              ": u must be (batch, dim, length): expected 3 dimensions, got shape ",
              in.u.sym_sizes());
  const auto sizes = in.u.sym_sizes().vec();
  check_shape(kScanOp, "delta", in.delta, "(batch, dim, length)", sizes);
  TORCH_CHECK(in.A.dim() == 2, kScanOp, ": A must be (dim, n): expected 2 dimensions, got shape ",
              in.A.sym_sizes());
  check_shape(kScanOp, "A", in.A, "(dim, n)", {sizes[1], in.A.sym_size(1)});
  check_states(kScanOp, in.A.sym_size(1));
  check_matrix(in, "B", in.B);
  check_matrix(in, "C", in.C);
  TORCH_CHECK(in.B.dim() != 4 || in.C.dim() != 4 ||
                  TORCH_GUARD_OR_TRUE(in.B.sym_size(1).sym_eq(in.C.sym_size(1))),
              kScanOp, ": C must have the groups of B: expected ", in.B.sym_sizes(), ", got ",
              in.C.sym_sizes());
  const auto check_option = [&](const char* name, const TensorOption& tensor, const char* layout,
                                const std::vector<c10::SymInt>& shape) {
    if (!is_given(tensor)) return;
    check(name, *tensor);
    check_shape(kScanOp, name, *tensor, layout, shape);
  };
  check_option("D", in.D, "(dim,)", {sizes[1]});
  check_option("z", in.z, "(batch, dim, length)", sizes);
  check_option("delta_bias", in.delta_bias, "(dim,)", {sizes[1]});
}

// Whether the channels are u's innermost dimension. Results are laid out as u.
inline bool is_channels_last(const at::Tensor& u) {
  return TORCH_GUARD_OR_FALSE(u.sym_stride(1).sym_eq(1)) &&
         !TORCH_GUARD_OR_FALSE(u.sym_stride(2).sym_eq(1));
}

// A dense tensor of u's shape and layout.
inline at::Tensor new_like(const at::Tensor& u, at::ScalarType dtype) {
  const auto sizes = u.sym_sizes();
  const auto options = u.options().dtype(dtype);
  if (!is_channels_last(u)) return at::empty_symint(sizes, options);
  return at::empty_symint({sizes[0], sizes[2], sizes[1]}, options).transpose(1, 2);
}

// ---------------------------------------------------------------- The update

// The arguments of an update, with a dimension of heads: state is (batch, heads, dim, n).
struct UpdateInputs {
  at::Tensor state, x, dt, A, B, C;
  at::Tensor D, z, dt_bias;  // undefined if not given
  bool softplus, has_heads;
};

inline UpdateInputs check_update(const SelectiveScanUpdate& op) {
  const auto& [state, x, dt, A, B, C, D, z, dt_bias, softplus] = op;
  const bool heads = state.dim() == 4;
  TORCH_CHECK(heads || state.dim() == 3, kUpdateOp,
              ": state must be (batch, dim, n) or (batch, heads, dim, n): expected 3 or 4 "
              "dimensions, got shape ",
              state.sym_sizes());
  const auto sizes = state.sym_sizes().vec();
  const c10::SymInt states = sizes.back();
  const std::vector<c10::SymInt> rows(sizes.begin(), sizes.end() - 1);
  const std::vector<c10::SymInt> own(sizes.begin() + 1, sizes.end());
  const std::vector<c10::SymInt> channels(rows.begin() + 1, rows.end());
  const auto check = [&](const char* name, const at::Tensor& tensor, const char* layout,
                         const char* with_heads, const std::vector<c10::SymInt>& shape,
                         int64_t head_dim) {
    check_operand(kUpdateOp, {name, tensor}, {"state", state});
    check_shape(kUpdateOp, name, tensor, heads ? with_heads : layout, shape);
    return heads ? tensor : tensor.unsqueeze(head_dim);
  };
  const auto check_matrix = [&](const char* name, const at::Tensor& tensor) {
    check_operand(kUpdateOp, {name, tensor}, {"state", state});
    const at::Tensor whole = tensor.dim() == 2 ? tensor.unsqueeze(1) : tensor;
    TORCH_CHECK(whole.dim() == 3, kUpdateOp, ": ", name,
                " must be (batch, n) or (batch, groups, n): expected 2 or 3 dimensions, got shape ",
                tensor.sym_sizes());
    check_shape(kUpdateOp, name, whole, "(batch, n) or (batch, groups, n)",
                {sizes[0], whole.sym_size(1), states});
    const c10::SymInt count = heads ? sizes[1] : c10::SymInt(1);
    TORCH_CHECK(TORCH_GUARD_OR_TRUE(whole.sym_size(1).sym_ge(1)) &&
                    TORCH_GUARD_OR_TRUE((count % whole.sym_size(1)).sym_eq(0)),
                kUpdateOp, ": ", name, " must have groups that divide the heads: expected a ",
                "divisor of ", count, ", got ", whole.sym_size(1), " groups");
    return whole;
  };
  check_operand(kUpdateOp, {"state", state}, {"state", state});
  UpdateInputs in;
  in.softplus = softplus;
  in.has_heads = heads;
  in.state = heads ? state : state.unsqueeze(1);
  in.x = check("x", x, "(batch, dim)", "(batch, heads, dim)", rows, 1);
  in.dt = check("dt", dt, "(batch, dim)", "(batch, heads, dim)", rows, 1);
  in.A = check("A", A, "(dim, n)", "(heads, dim, n)", own, 0);
  check_states(kUpdateOp, states);
  in.B = check_matrix("B", B);
  in.C = check_matrix("C", C);
  TORCH_CHECK(TORCH_GUARD_OR_TRUE(in.B.sym_size(1).sym_eq(in.C.sym_size(1))), kUpdateOp,
              ": C must have the groups of B: expected ", B.sym_sizes(), ", got ", C.sym_sizes());
  if (is_given(D)) in.D = check("D", *D, "(dim,)", "(heads, dim)", channels, 0);
  if (is_given(z)) in.z = check("z", *z, "(batch, dim)", "(batch, heads, dim)", rows, 1);
  if (is_given(dt_bias)) {
    in.dt_bias = check("dt_bias", *dt_bias, "(dim,)", "(heads, dim)", channels, 0);
  }
  check_writable(kUpdateOp, {"state", state}, {{"x", x}, {"dt", dt}, {"A", A}, {"B", B}, {"C", C}});
  for (const auto& [name, option] : {std::pair{"D", &D}, {"z", &z}, {"dt_bias", &dt_bias}}) {
    if (is_given(*option)) check_writable(kUpdateOp, {"state", state}, {{name, **option}});
  }
  return in;
}

}  // namespace gpuopt::selective
