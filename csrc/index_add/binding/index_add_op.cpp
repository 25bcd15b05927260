// gpuopt::index_add and index_add_: schemas, and the CPU and Meta kernels.
#include <ATen/OpMathType.h>

#include "binding/writing.h"
#include "index_add/binding/index_add_check.h"

namespace gpuopt::index_add {
namespace {

TORCH_LIBRARY_FRAGMENT(gpuopt, m) { define<IndexAdd, Out<IndexAdd>, Inplace<IndexAdd>>(m); }

// ---------------------------------------------------------------- CPU: ATen's kernels

// Returns an entry that is out of range, or none.
std::optional<int64_t> out_of_range(const Tensor& index, int64_t bins) {
  if (index.numel() == 0) return std::nullopt;
  const auto [min, max] = at::aminmax(index);
  const auto least = min.item().toLong(), greatest = max.item().toLong();
  if (least < 0) return least;
  return greatest >= bins ? std::optional(greatest) : std::nullopt;
}

int64_t bins_of(const IndexAdd& op) { return op.self.dim() == 0 ? 1 : op.self.size(op.dim); }

// Calls ATen, and gives its errors the operator's name and arguments. Only ATen knows which dtypes
// it supports, where it checks the index, and which of two exception types it then throws.
template <typename Add>
Tensor call_aten(const Call& call, Add add) {
  const char* op = call.name;
  const auto& [self, dim, index, source, alpha, mode] = call.op;
  const int64_t bins = bins_of(call.op);
  const auto wrong_index = [&] {
    const auto entry = out_of_range(index, bins);
    return entry.has_value()
               ? c10::str(op, ": index must be in the range of dimension ", dim,
                          " of self: expected values from 0 to ", bins - 1, ", got ", *entry)
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
at::ScalarType sum_dtype(const Call& call) {
  const auto dtype = call.op.self.scalar_type();
  const bool half = dtype == at::kHalf || dtype == at::kBFloat16 || dtype == at::kComplexHalf;
  return half && call.mode != Mode::kFast ? at::toOpMathType(dtype) : dtype;
}

Tensor sum_on_cpu(const Call& call) {
  const auto& op = call.op;
  const auto dtype = sum_dtype(call);
  return call_aten(call, [&] {
    return at::index_add(op.self.to(dtype), op.dim, op.index, op.source.to(dtype), op.alpha)
        .to(op.self.scalar_type());
  });
}

Tensor index_add_cpu(const IndexAdd& op) { return sum_on_cpu(check(op)); }

Tensor& index_add_inplace_cpu(const Inplace<IndexAdd>& given) {
  const Call call = check(given);
  const auto& op = call.op;
  Tensor& self = given.self;
  // ATen's in-place kernel adds all entries before the one that it refuses. So the index is checked
  // first.
  const bool in_place =
      sum_dtype(call) == self.scalar_type() && !out_of_range(op.index, bins_of(op)).has_value();
  if (!in_place) return self.copy_(sum_on_cpu(call));
  call_aten(call, [&] { return self.index_add_(op.dim, op.index, op.source, op.alpha); });
  return self;
}

// ATen's out= kernel is not used: it writes to out before it refuses an index.
TORCH_LIBRARY_IMPL(gpuopt, CPU, m) {
  impl<IndexAdd, index_add_cpu>(m);
  impl_out<IndexAdd, checked<Out<IndexAdd>>, index_add_cpu>(m);
  impl<Inplace<IndexAdd>, index_add_inplace_cpu>(m);
}

// ---------------------------------------------------------------- Meta: shapes, maybe symbolic

Tensor index_add_meta(const IndexAdd& op) {
  check(op);
  return at::empty_symint(op.self.sym_sizes(), op.self.options());
}

Tensor& index_add_inplace_meta(const Inplace<IndexAdd>& call) {
  check(call);
  return call.self;
}

TORCH_LIBRARY_IMPL(gpuopt, Meta, m) {
  impl<IndexAdd, index_add_meta>(m);
  impl_out<IndexAdd, checked<Out<IndexAdd>>, index_add_meta>(m);
  impl<Inplace<IndexAdd>, index_add_inplace_meta>(m);
}

}  // namespace
}  // namespace gpuopt::index_add
