// Checks the arguments of each operator form and derives the result's shape and dtype from them.
// The CUDA, CPU and Meta kernels all call these functions. Exceptions have the same types as in
// torch.sum, mean, amax and amin.
#pragma once

#include <ATen/DimVector.h>
#include <ATen/EmptyTensor.h>
#include <ATen/ops/mean_meta_dispatch.h>

#include <bitset>
#include <optional>
#include <string>

#include "binding/check.h"

namespace gpuopt::reduce {

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
              ": self has too many dimensions for a list of them: expected at most ",
              DimMask::kMaxRank, " unless all are reduced, got ", rank);
  const int64_t count = rank == 0 ? 1 : rank;  // a zero-dimensional self accepts 0 and -1
  DimMask mask;
  for (const int64_t d : *dim) {
    TORCH_CHECK_INDEX(-count <= d && d < count, op,
                      ": dim must be a dimension of self: expected a value from ", -count, " to ",
                      count - 1, ", got ", d);
    const int64_t wrapped = d < 0 ? d + count : d;
    TORCH_CHECK(!mask[wrapped], op, ": dim must name each dimension once: got dimension ", wrapped,
                " more than once in ", *dim);
    mask.set(wrapped);
  }
  return mask;
}

template <typename Size>
BasicReduction<Size> check_dims(const char* op, const at::Tensor& self, at::OptionalIntArrayRef dim,
                                bool keepdim, at::ScalarType dtype) {
  const auto sizes = sizes_of<Size>(self);
  const auto rank = static_cast<int64_t>(sizes.size());
  BasicReduction<Size> reduction;
  reduction.mask = reduced_dims(op, dim, rank);
  reduction.dtype = dtype;
  for (int64_t d = 0; d < rank; ++d) {
    if (!reduction.mask[d]) {
      reduction.shape.push_back(sizes[d]);
    } else if (keepdim) {
      reduction.shape.push_back(1);
    }
  }
  return reduction;
}

// ---------------------------------------------------------------- functional forms

template <typename Size = int64_t>
BasicReduction<Size> check_sum(const at::Tensor& self, at::OptionalIntArrayRef dim, bool keepdim,
                               std::optional<at::ScalarType> dtype) {
  at::ScalarType result = dtype.value_or(self.scalar_type());
  if (!dtype.has_value() && at::isIntegralType(result, /*includeBool=*/true)) result = at::kLong;
  return check_dims<Size>("gpuopt::reduce_sum", self, dim, keepdim, result);
}

// A mean needs a floating-point or complex dtype. For other dtypes, torch 2.11 raises RuntimeError
// and torch 2.15 NotImplementedError. ATen's own check decides which. It is called below the
// dispatcher, so that nothing traces it.
inline void check_mean_dtype(const char* op, const char* argument, at::ScalarType dtype) {
  if (at::isFloatingType(dtype) || at::isComplexType(dtype)) return;
  const std::string message = c10::str(
      op, ": ", argument,
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
BasicReduction<Size> check_mean(const at::Tensor& self, at::OptionalIntArrayRef dim, bool keepdim,
                                std::optional<at::ScalarType> dtype) {
  constexpr const char* op = "gpuopt::reduce_mean";
  const at::ScalarType result = dtype.value_or(self.scalar_type());
  check_mean_dtype(op, dtype.has_value() ? "dtype" : "self, or else dtype,", result);
  return check_dims<Size>(op, self, dim, keepdim, result);
}

// For reduce_max and reduce_min. An empty set of values has no extremum, so it is an error.
template <typename Size = int64_t>
BasicReduction<Size> check_extremum(const char* op, const at::Tensor& self,
                                    at::OptionalIntArrayRef dim, bool keepdim) {
  auto reduction = check_dims<Size>(op, self, dim, keepdim, self.scalar_type());
  const auto sizes = sizes_of<Size>(self);
  const bool all = !dim.has_value() || dim->empty();
  for (size_t d = 0; d < sizes.size(); ++d) {
    if (!reduction.mask[d] || !is_known_zero(sizes[d])) continue;
    TORCH_CHECK(!all, op, ": self must not be empty unless dim is given: expected at least one ",
                "value, got shape ", sizes);
    TORCH_CHECK_INDEX(false, op, ": dim must name dimensions that are not empty: expected size 1 ",
                      "or more in dimension ", d, " of self, got shape ", sizes);
  }
  return reduction;
}

// ---------------------------------------------------------------- out=

// Refuses an out that overlaps self in part. (ATen lets a reduction overwrite values that it has
// not read yet.) An out that shares memory in any other way is written after self has been read.
inline void check_out(const char* op, const at::Tensor& self, const at::Tensor& out) {
  TORCH_CHECK(out.device() == self.device(), op, ": out must be on the device of self: expected ",
              self.device(), ", got ", out.device());
  check_writable(op, {"out", out}, {{"self", self}});
}

inline void check_out_dtype(const char* op, std::optional<at::ScalarType> dtype,
                            const at::Tensor& out) {
  TORCH_CHECK(!dtype.has_value() || *dtype == out.scalar_type(), op,
              ": out must have the dtype given as dtype: expected ", *dtype, ", got ",
              out.scalar_type());
}

// If dtype is not given, values are converted to out's dtype.
template <typename Size = int64_t>
BasicReduction<Size> check_sum_out(const at::Tensor& self, at::OptionalIntArrayRef dim,
                                   bool keepdim, std::optional<at::ScalarType> dtype,
                                   const at::Tensor& out) {
  constexpr const char* op = "gpuopt::reduce_sum";
  check_out_dtype(op, dtype, out);
  auto reduction = check_sum<Size>(self, dim, keepdim, out.scalar_type());
  check_out(op, self, out);
  return reduction;
}

template <typename Size = int64_t>
BasicReduction<Size> check_mean_out(const at::Tensor& self, at::OptionalIntArrayRef dim,
                                    bool keepdim, std::optional<at::ScalarType> dtype,
                                    const at::Tensor& out) {
  constexpr const char* op = "gpuopt::reduce_mean";
  check_out_dtype(op, dtype, out);
  auto reduction = check_mean<Size>(self, dim, keepdim, dtype);
  TORCH_CHECK(
      at::isFloatingType(out.scalar_type()) || at::isComplexType(out.scalar_type()), op,
      ": out must be floating-point or complex: expected a dtype that can hold a mean, got ",
      out.scalar_type());
  reduction.dtype = out.scalar_type();
  check_out(op, self, out);
  return reduction;
}

template <typename Size = int64_t>
BasicReduction<Size> check_extremum_out(const char* op, const at::Tensor& self,
                                        at::OptionalIntArrayRef dim, bool keepdim,
                                        const at::Tensor& out) {
  TORCH_CHECK(out.scalar_type() == self.scalar_type(), op,
              ": out must have self's dtype: expected ", self.scalar_type(), ", got ",
              out.scalar_type());
  auto reduction = check_extremum<Size>(op, self, dim, keepdim);
  check_out(op, self, out);
  return reduction;
}

}  // namespace gpuopt::reduce
