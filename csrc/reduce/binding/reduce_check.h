// check() checks the arguments of each operator form and derives the result's shape and dtype from
// them. All kernels call it. Exceptions have the same types as in torch.sum, mean, amax and amin.
#pragma once

#include <ATen/DimVector.h>
#include <ATen/EmptyTensor.h>
#include <ATen/ops/mean_meta_dispatch.h>

#include <bitset>
#include <concepts>
#include <string>

#include "binding/check.h"
#include "reduce/binding/reduce_ops.h"

namespace gpuopt::reduce {

using Ops = OpList<ReduceSum, ReduceMean, ReduceMax, ReduceMin>;

template <typename Op>
inline constexpr bool kIsMean = std::same_as<Op, ReduceMean>;

// The operators whose result is one of the values.
template <typename Op>
concept Extremum = std::same_as<Op, ReduceMax> || std::same_as<Op, ReduceMin>;

// The dimensions of self that are reduced. A list of dimensions is limited to tensors of 64
// dimensions, as in ATen. A reduction of all dimensions is not.
class DimMask {
 public:
  static constexpr int64_t kMaxRank = 64;

  static DimMask all() {
    DimMask mask;
    mask.all_ = true;
    return mask;
  }
  void set(int64_t d) { bits_.set(d); }
  bool operator[](int64_t d) const { return all_ || bits_[d]; }

 private:
  bool all_ = false;
  std::bitset<kMaxRank> bits_;
};

// A checked call. Size is int64_t, or c10::SymInt if sizes may be symbolic.
template <typename Size>
struct BasicReduction {
  DimMask mask;
  c10::SmallVector<Size, at::kDimVectorStaticSize> shape;  // of the result, which is contiguous
  at::ScalarType dtype;  // of the result; values are converted to it before they are reduced
};
using Reduction = BasicReduction<int64_t>;
using SymReduction = BasicReduction<c10::SymInt>;

// Makes a mask of `dim`. A missing or empty `dim` means all dimensions.
inline DimMask reduced_dims(const char* op, at::OptionalIntArrayRef dim, int64_t rank) {
  if (!dim.has_value() || dim->empty()) return DimMask::all();
  TORCH_CHECK(rank <= DimMask::kMaxRank, op,
              ": input has too many dimensions for a list of them: expected at most ",
              DimMask::kMaxRank, " unless all are reduced, got ", rank);
  DimMask mask;
  for (const int64_t d : *dim) {
    const int64_t wrapped = checked_dim(op, d, rank);
    TORCH_CHECK(!mask[wrapped], op, ": dim must name each dimension once: got dimension ", wrapped,
                " more than once in ", *dim);
    mask.set(wrapped);
  }
  return mask;
}

template <typename Size, typename Op>
BasicReduction<Size> check_dims(const Op& op, at::ScalarType dtype) {
  const auto sizes = sizes_of<Size>(op.self);
  const auto rank = static_cast<int64_t>(sizes.size());
  BasicReduction<Size> reduction;
  reduction.mask = reduced_dims(name_of<Op>(), op.dim, rank);
  reduction.dtype = dtype;
  for (int64_t d = 0; d < rank; ++d) {
    if (!reduction.mask[d]) {
      reduction.shape.push_back(sizes[d]);
    } else if (op.keepdim) {
      reduction.shape.push_back(1);
    }
  }
  return reduction;
}

// ---------------------------------------------------------------- functional forms

template <typename Size = int64_t>
BasicReduction<Size> check(const ReduceSum& op) {
  at::ScalarType dtype = op.dtype.value_or(op.self.scalar_type());
  if (!op.dtype.has_value() && at::isIntegralType(dtype, /*includeBool=*/true)) dtype = at::kLong;
  return check_dims<Size>(op, dtype);
}

// A mean needs a floating-point or complex dtype. For other dtypes, torch 2.11 raises RuntimeError
// and torch 2.15 NotImplementedError. ATen's own check decides which. It is called below the
// dispatcher, so that nothing traces it.
inline void check_mean_dtype(const char* argument, at::ScalarType dtype) {
  if (at::isFloatingType(dtype) || at::isComplexType(dtype)) return;
  const std::string message = c10::str(
      name_of<ReduceMean>(), ": ", argument,
      " must be floating-point or complex: expected a dtype that can hold a mean, got ", dtype);
  try {
    at::meta::mean(at::detail::empty_meta({0}, dtype), /*dim=*/std::nullopt);
  } catch (const c10::NotImplementedError&) {
    TORCH_CHECK_NOT_IMPLEMENTED(false, message);
  } catch (const c10::Error&) {
  }
  TORCH_CHECK(false, message);
}

template <typename Size = int64_t>
BasicReduction<Size> check(const ReduceMean& op) {
  const at::ScalarType dtype = op.dtype.value_or(op.self.scalar_type());
  check_mean_dtype(op.dtype.has_value() ? "dtype" : "input, or else dtype,", dtype);
  return check_dims<Size>(op, dtype);
}

// An empty set of values has no extremum, so it is an error.
template <typename Size = int64_t, Extremum Op>
BasicReduction<Size> check(const Op& op) {
  const char* name = name_of<Op>();
  auto reduction = check_dims<Size>(op, op.self.scalar_type());
  const auto sizes = sizes_of<Size>(op.self);
  const bool all = !op.dim.has_value() || op.dim->empty();
  for (size_t d = 0; d < sizes.size(); ++d) {
    if (!reduction.mask[d] || !is_known_zero(sizes[d])) continue;
    TORCH_CHECK(!all, name, ": input must not be empty unless dim is given: expected at least one ",
                "value, got shape ", sizes);
    TORCH_CHECK_INDEX(false, name,
                      ": dim must name dimensions that are not empty: expected size 1 ",
                      "or more in dimension ", d, " of input, got shape ", sizes);
  }
  return reduction;
}

// ---------------------------------------------------------------- out=

// Values are converted to out's dtype. An out that overlaps self in part is refused. (ATen lets a
// reduction overwrite values that it has not read yet.) An out that shares memory in any other way
// is written after self has been read.
template <typename Size = int64_t, typename Op>
BasicReduction<Size> check(const Out<Op>& call) {
  const char* name = name_of<Op>();
  const auto& [op, out] = call;
  const at::ScalarType dtype = out.scalar_type();
  if constexpr (Extremum<Op>) {
    check_input_dtype(name, {"out", out}, op.self);
  } else {
    TORCH_CHECK(!op.dtype.has_value() || *op.dtype == dtype, name,
                ": out must have the dtype given as dtype: expected ", *op.dtype, ", got ", dtype);
  }
  auto reduction = check<Size>(op);
  TORCH_CHECK(
      !kIsMean<Op> || at::isFloatingType(dtype) || at::isComplexType(dtype), name,
      ": out must be floating-point or complex: expected a dtype that can hold a mean, got ",
      dtype);
  reduction.dtype = dtype;
  check_device_of(name, {"out", out}, {"input", op.self});
  check_writable(name, {"out", out}, {{"input", op.self}});
  return reduction;
}

// The operator whose result is written to out.
template <typename Op>
Op checked(const Out<Op>& call) {
  Op op = call.in;
  const at::ScalarType dtype = check<c10::SymInt>(call).dtype;
  if constexpr (!Extremum<Op>) op.dtype = dtype;
  return op;
}

}  // namespace gpuopt::reduce
