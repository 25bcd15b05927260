// The schemas, CPU kernels and Meta kernels of gpuopt::reduce_sum, reduce_mean, reduce_max and
// reduce_min.
#include <ATen/native/Resize.h>
#include <torch/library.h>

#include "reduce/binding/reduce_check.h"

TORCH_LIBRARY_FRAGMENT(gpuopt, m) {
  const std::vector<at::Tag> tags{at::Tag::pt2_compliant_tag};
  m.def(
      "reduce_sum(Tensor self, int[1]? dim=None, bool keepdim=False, *, "
      "ScalarType? dtype=None) -> Tensor",
      tags);
  m.def(
      "reduce_sum.out(Tensor self, int[1]? dim=None, bool keepdim=False, *, "
      "ScalarType? dtype=None, Tensor(a!) out) -> Tensor(a!)",
      tags);
  m.def(
      "reduce_mean(Tensor self, int[1]? dim=None, bool keepdim=False, *, "
      "ScalarType? dtype=None) -> Tensor",
      tags);
  m.def(
      "reduce_mean.out(Tensor self, int[1]? dim=None, bool keepdim=False, *, "
      "ScalarType? dtype=None, Tensor(a!) out) -> Tensor(a!)",
      tags);
  m.def("reduce_max(Tensor self, int[1]? dim=None, bool keepdim=False) -> Tensor", tags);
  m.def(
      "reduce_max.out(Tensor self, int[1]? dim=None, bool keepdim=False, *, "
      "Tensor(a!) out) -> Tensor(a!)",
      tags);
  m.def("reduce_min(Tensor self, int[1]? dim=None, bool keepdim=False) -> Tensor", tags);
  m.def(
      "reduce_min.out(Tensor self, int[1]? dim=None, bool keepdim=False, *, "
      "Tensor(a!) out) -> Tensor(a!)",
      tags);
}

namespace gpuopt::reduce {
namespace {

using at::OptionalIntArrayRef;
using at::ScalarType;
using at::Tensor;

// ---------------------------------------------------------------- CPU: ATen's kernels

// Calls ATen and names the operator if ATen doesn't implement the dtype. Which dtypes ATen
// implements depends on its version.
template <typename Reduce>
Tensor call_aten(const char* op, ScalarType dtype, Reduce reduce) {
  try {
    return reduce();
  } catch (const c10::NotImplementedError& error) {
    TORCH_CHECK_NOT_IMPLEMENTED(false, op, " (CPU) is not implemented for ", dtype,
                                ": expected another dtype to reduce in (",
                                error.what_without_backtrace(), ")");
  }
}

// All dimensions as an empty list. ATen's sum without a list makes a full one, which is limited to
// 64 dimensions.
at::IntArrayRef listed(OptionalIntArrayRef dim) { return dim.value_or(at::IntArrayRef{}); }

// Writes a functional result to out. ATen's out= kernels would resize out before they refuse a
// dtype.
Tensor& write(Tensor& out, const Tensor& result) {
  at::native::resize_output(out, result.sizes());
  return out.copy_(result);
}

Tensor sum_cpu(const Tensor& self, OptionalIntArrayRef dim, bool keepdim,
               std::optional<ScalarType> dtype) {
  const ScalarType result = check_sum(self, dim, keepdim, dtype).dtype;
  return call_aten("gpuopt::reduce_sum", result,
                   [&] { return at::sum(self, listed(dim), keepdim, result); });
}

Tensor& sum_out_cpu(const Tensor& self, OptionalIntArrayRef dim, bool keepdim,
                    std::optional<ScalarType> dtype, Tensor& out) {
  return write(out,
               sum_cpu(self, dim, keepdim, check_sum_out(self, dim, keepdim, dtype, out).dtype));
}

Tensor mean_cpu(const Tensor& self, OptionalIntArrayRef dim, bool keepdim,
                std::optional<ScalarType> dtype) {
  const ScalarType result = check_mean(self, dim, keepdim, dtype).dtype;
  return call_aten("gpuopt::reduce_mean", result,
                   [&] { return at::mean(self, listed(dim), keepdim, result); });
}

Tensor& mean_out_cpu(const Tensor& self, OptionalIntArrayRef dim, bool keepdim,
                     std::optional<ScalarType> dtype, Tensor& out) {
  return write(out,
               mean_cpu(self, dim, keepdim, check_mean_out(self, dim, keepdim, dtype, out).dtype));
}

Tensor max_cpu(const Tensor& self, OptionalIntArrayRef dim, bool keepdim) {
  constexpr const char* op = "gpuopt::reduce_max";
  return call_aten(op, check_extremum(op, self, dim, keepdim).dtype,
                   [&] { return at::amax(self, listed(dim), keepdim); });
}

Tensor& max_out_cpu(const Tensor& self, OptionalIntArrayRef dim, bool keepdim, Tensor& out) {
  check_extremum_out("gpuopt::reduce_max", self, dim, keepdim, out);
  return write(out, max_cpu(self, dim, keepdim));
}

Tensor min_cpu(const Tensor& self, OptionalIntArrayRef dim, bool keepdim) {
  constexpr const char* op = "gpuopt::reduce_min";
  return call_aten(op, check_extremum(op, self, dim, keepdim).dtype,
                   [&] { return at::amin(self, listed(dim), keepdim); });
}

Tensor& min_out_cpu(const Tensor& self, OptionalIntArrayRef dim, bool keepdim, Tensor& out) {
  check_extremum_out("gpuopt::reduce_min", self, dim, keepdim, out);
  return write(out, min_cpu(self, dim, keepdim));
}

TORCH_LIBRARY_IMPL(gpuopt, CPU, m) {
  m.impl("reduce_sum", sum_cpu);
  m.impl("reduce_sum.out", sum_out_cpu);
  m.impl("reduce_mean", mean_cpu);
  m.impl("reduce_mean.out", mean_out_cpu);
  m.impl("reduce_max", max_cpu);
  m.impl("reduce_max.out", max_out_cpu);
  m.impl("reduce_min", min_cpu);
  m.impl("reduce_min.out", min_out_cpu);
}

// ---------------------------------------------------------------- Meta: shapes, possibly symbolic

Tensor empty(const Tensor& self, const SymReduction& reduction) {
  return at::empty_symint(reduction.shape, self.options().dtype(reduction.dtype));
}

Tensor& resize(Tensor& out, const SymReduction& reduction) {
  at::native::resize_output_symint(out, reduction.shape);
  return out;
}

Tensor sum_meta(const Tensor& self, OptionalIntArrayRef dim, bool keepdim,
                std::optional<ScalarType> dtype) {
  return empty(self, check_sum<c10::SymInt>(self, dim, keepdim, dtype));
}

Tensor& sum_out_meta(const Tensor& self, OptionalIntArrayRef dim, bool keepdim,
                     std::optional<ScalarType> dtype, Tensor& out) {
  return resize(out, check_sum_out<c10::SymInt>(self, dim, keepdim, dtype, out));
}

Tensor mean_meta(const Tensor& self, OptionalIntArrayRef dim, bool keepdim,
                 std::optional<ScalarType> dtype) {
  return empty(self, check_mean<c10::SymInt>(self, dim, keepdim, dtype));
}

Tensor& mean_out_meta(const Tensor& self, OptionalIntArrayRef dim, bool keepdim,
                      std::optional<ScalarType> dtype, Tensor& out) {
  return resize(out, check_mean_out<c10::SymInt>(self, dim, keepdim, dtype, out));
}

Tensor max_meta(const Tensor& self, OptionalIntArrayRef dim, bool keepdim) {
  return empty(self, check_extremum<c10::SymInt>("gpuopt::reduce_max", self, dim, keepdim));
}

Tensor& max_out_meta(const Tensor& self, OptionalIntArrayRef dim, bool keepdim, Tensor& out) {
  return resize(out,
                check_extremum_out<c10::SymInt>("gpuopt::reduce_max", self, dim, keepdim, out));
}

Tensor min_meta(const Tensor& self, OptionalIntArrayRef dim, bool keepdim) {
  return empty(self, check_extremum<c10::SymInt>("gpuopt::reduce_min", self, dim, keepdim));
}

Tensor& min_out_meta(const Tensor& self, OptionalIntArrayRef dim, bool keepdim, Tensor& out) {
  return resize(out,
                check_extremum_out<c10::SymInt>("gpuopt::reduce_min", self, dim, keepdim, out));
}

TORCH_LIBRARY_IMPL(gpuopt, Meta, m) {
  m.impl("reduce_sum", sum_meta);
  m.impl("reduce_sum.out", sum_out_meta);
  m.impl("reduce_mean", mean_meta);
  m.impl("reduce_mean.out", mean_out_meta);
  m.impl("reduce_max", max_meta);
  m.impl("reduce_max.out", max_out_meta);
  m.impl("reduce_min", min_meta);
  m.impl("reduce_min.out", min_out_meta);
}

}  // namespace
}  // namespace gpuopt::reduce
