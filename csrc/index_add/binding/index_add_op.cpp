// gpuopt::index_add and index_add_: schemas, and the CPU and Meta kernels.
#include <ATen/OpMathType.h>
#include <ATen/native/Resize.h>
#include <torch/library.h>

#include "index_add/binding/index_add_check.h"

TORCH_LIBRARY_FRAGMENT(gpuopt, m) {
  const std::vector<at::Tag> tags{at::Tag::pt2_compliant_tag};
  m.def(
      "index_add(Tensor self, int dim, Tensor index, Tensor source, *, Scalar alpha=1, "
      "str mode=\"fast\") -> Tensor",
      tags);
  m.def(
      "index_add.out(Tensor self, int dim, Tensor index, Tensor source, *, Scalar alpha=1, "
      "str mode=\"fast\", Tensor(a!) out) -> Tensor(a!)",
      tags);
  m.def(
      "index_add_(Tensor(a!) self, int dim, Tensor index, Tensor source, *, Scalar alpha=1, "
      "str mode=\"fast\") -> Tensor(a!)",
      tags);
}

namespace gpuopt::index_add {
namespace {

using at::Scalar;
using at::Tensor;

// ---------------------------------------------------------------- CPU: ATen's kernels

// Returns an entry that is out of range, or none.
std::optional<int64_t> out_of_range(const Tensor& index, int64_t bins) {
  if (index.numel() == 0) return std::nullopt;
  const auto [min, max] = at::aminmax(index);
  const auto least = min.item().toLong(), greatest = max.item().toLong();
  if (least < 0) return least;
  return greatest >= bins ? std::optional(greatest) : std::nullopt;
}

int64_t bins_of(const Tensor& self, int64_t dim) { return self.dim() == 0 ? 1 : self.size(dim); }

// Calls ATen, and gives its errors the operator's name and arguments. Only ATen knows which dtypes
// it supports, where it checks the index, and which of two exception types it then throws.
template <typename Add>
Tensor call_aten(const char* op, const Tensor& self, int64_t dim, const Tensor& index, Add add) {
  const auto wrong_index = [&] {
    const auto entry = out_of_range(index, bins_of(self, dim));
    return entry.has_value() ? c10::str(op, ": index must be in the range of dimension ", dim,
                                        " of self: expected values from 0 to ",
                                        bins_of(self, dim) - 1, ", got ", *entry)
                             : std::string();
  };
  try {
    return add();
  } catch (const c10::NotImplementedError& error) {
    TORCH_CHECK_NOT_IMPLEMENTED(false, op, " (CPU) is not implemented for ", self.scalar_type(),
                                ": expected another dtype (", error.what_without_backtrace(), ")");
  } catch (const c10::IndexError&) {
    const std::string message = wrong_index();
    TORCH_CHECK_INDEX(message.empty(), message);
    throw;
  } catch (const c10::Error&) {
    const std::string message = wrong_index();
    TORCH_CHECK(message.empty(), message);
    throw;
  }
}

// The dtype of sums. ATen may round half types after each addition.
at::ScalarType sum_dtype(const Tensor& self, Mode mode) {
  const auto dtype = self.scalar_type();
  const bool half = dtype == at::kHalf || dtype == at::kBFloat16 || dtype == at::kComplexHalf;
  return half && mode != Mode::kFast ? at::toOpMathType(dtype) : dtype;
}

Tensor add(const char* op, const Call& call, const Tensor& self, const Tensor& index,
           const Tensor& source, const Scalar& alpha) {
  const auto dtype = sum_dtype(self, call.mode);
  return call_aten(op, self, call.dim, index, [&] {
    return at::index_add(self.to(dtype), call.dim, index, source.to(dtype), alpha)
        .to(self.scalar_type());
  });
}

Tensor index_add_cpu(const Tensor& self, int64_t dim, const Tensor& index, const Tensor& source,
                     const Scalar& alpha, std::string_view mode) {
  constexpr const char* op = "gpuopt::index_add";
  const Call call = check_index_add(op, self, dim, index, source, alpha, mode);
  return add(op, call, self, index, source, alpha);
}

Tensor& index_add_out_cpu(const Tensor& self, int64_t dim, const Tensor& index,
                          const Tensor& source, const Scalar& alpha, std::string_view mode,
                          Tensor& out) {
  constexpr const char* op = "gpuopt::index_add";
  const Call call = check_out(op, self, dim, index, source, alpha, mode, out);
  // ATen's out= kernel is not used: it writes to out before it refuses an index.
  const Tensor result = add(op, call, self, index, source, alpha);
  at::native::resize_output(out, result.sizes());
  return out.copy_(result);
}

Tensor& index_add_inplace_cpu(Tensor& self, int64_t dim, const Tensor& index, const Tensor& source,
                              const Scalar& alpha, std::string_view mode) {
  constexpr const char* op = "gpuopt::index_add_";
  const Call call = check_inplace(op, self, dim, index, source, alpha, mode);
  // ATen's in-place kernel adds all entries before the one that it refuses. So the index is checked
  // first.
  const bool in_place = sum_dtype(self, call.mode) == self.scalar_type() &&
                        !out_of_range(index, bins_of(self, call.dim)).has_value();
  if (!in_place) return self.copy_(add(op, call, self, index, source, alpha));
  call_aten(op, self, call.dim, index,
            [&] { return self.index_add_(call.dim, index, source, alpha); });
  return self;
}

TORCH_LIBRARY_IMPL(gpuopt, CPU, m) {
  m.impl("index_add", index_add_cpu);
  m.impl("index_add.out", index_add_out_cpu);
  m.impl("index_add_", index_add_inplace_cpu);
}

// ---------------------------------------------------------------- Meta: shapes, maybe symbolic

Tensor index_add_meta(const Tensor& self, int64_t dim, const Tensor& index, const Tensor& source,
                      const Scalar& alpha, std::string_view mode) {
  check_index_add("gpuopt::index_add", self, dim, index, source, alpha, mode);
  return at::empty_symint(self.sym_sizes(), self.options());
}

Tensor& index_add_out_meta(const Tensor& self, int64_t dim, const Tensor& index,
                           const Tensor& source, const Scalar& alpha, std::string_view mode,
                           Tensor& out) {
  check_out("gpuopt::index_add", self, dim, index, source, alpha, mode, out);
  at::native::resize_output_symint(out, self.sym_sizes());
  return out;
}

Tensor& index_add_inplace_meta(Tensor& self, int64_t dim, const Tensor& index, const Tensor& source,
                               const Scalar& alpha, std::string_view mode) {
  check_inplace("gpuopt::index_add_", self, dim, index, source, alpha, mode);
  return self;
}

TORCH_LIBRARY_IMPL(gpuopt, Meta, m) {
  m.impl("index_add", index_add_meta);
  m.impl("index_add.out", index_add_out_meta);
  m.impl("index_add_", index_add_inplace_meta);
}

}  // namespace
}  // namespace gpuopt::index_add
