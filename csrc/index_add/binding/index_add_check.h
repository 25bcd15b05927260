// Argument checks of all forms of the operator, shared by the CUDA, CPU and Meta kernels, vmap and
// functionalization. Exception types are the same as in torch.index_add.
#pragma once

#include <ATen/Context.h>
#include <ATen/Dispatch.h>

#include <exception>

#include "binding/check.h"
#include "index_add/binding/index_add_ops.h"
#include "index_add/index_add_problem.h"

namespace gpuopt::index_add {

using at::Tensor;

// A checked call.
struct Call {
  const char* name;
  IndexAdd op;  // dim is not negative, and 0 where self and source have no dimensions
  Mode mode;    // torch.use_deterministic_algorithms() taken into account
};

inline Mode check_mode(const char* op, std::string_view mode) {
  const bool fast = mode == "fast", accurate = mode == "accurate";
  TORCH_CHECK_VALUE(fast || accurate || mode == "deterministic", op,
                    ": mode must be a known word: expected \"fast\", \"deterministic\" or "
                    "\"accurate\", got \"",
                    mode, "\"");
  if (at::globalContext().deterministicAlgorithms()) return Mode::kDeterministic;
  return fast ? Mode::kFast : accurate ? Mode::kAccurate : Mode::kDeterministic;
}

// Whether ATen's kernels can convert a number to a dtype. They refuse a number out of range, and
// drop the fraction of a number for integer dtypes.
inline bool converts(const at::Scalar& number, at::ScalarType dtype) {
  // The value is not known while a graph is traced. The kernels check it again.
  if (number.isSymbolic()) return true;
  try {
    AT_DISPATCH_ALL_TYPES_AND_COMPLEX_AND4(at::kComplexHalf, at::kHalf, at::kBFloat16, at::kBool,
                                           dtype, "converts", [&] { (void)number.to<scalar_t>(); });
  } catch (const c10::NotImplementedError&) {
    return true;                     // the kernels refuse the dtype itself
  } catch (const std::exception&) {  // out of range: std::runtime_error or c10::Error
    return false;
  }
  return true;
}

// Sizes may be symbolic. A condition that is not known then becomes a guard, as in ATen.
inline void check_shapes(const char* op, int64_t dim, const Tensor& self, const Tensor& index,
                         const Tensor& source) {
  const auto entries = index.sym_numel();
  if (dim == 0 && source.dim() == 0) {
    TORCH_CHECK_INDEX(entries.sym_eq(1).expect_true(__FILE__, __LINE__), op,
                      ": index must have one entry for a source without dimensions: expected 1, "
                      "got ",
                      entries);
  }
  const auto sizes = self.sym_sizes(), source_sizes = source.sym_sizes();
  TORCH_CHECK(source.dim() == self.dim(), op,
              ": source must have as many dimensions as input: ", "expected ", self.dim(),
              ", got shape ", source_sizes);
  for (int64_t d = 0; d < self.dim(); ++d) {
    if (d == dim) {
      TORCH_SYM_CHECK(entries.sym_eq(source_sizes[d]), op,
                      ": index must have one entry for each slice of source: expected ",
                      source_sizes[d], ", got ", entries);
    } else {
      TORCH_SYM_CHECK(source_sizes[d].sym_eq(sizes[d]), op,
                      ": source must have input's sizes but in dimension ", dim,
                      ": expected those of ", sizes, ", got ", source_sizes);
    }
  }
}

inline Call check(const char* op, const IndexAdd& given) {
  const auto& [self, dim, index, source, alpha, mode] = given;
  const Mode checked_mode = check_mode(op, mode);
  check_device_of(op, {"index", index}, {"input", self});
  check_device_of(op, {"source", source}, {"input", self});
  const int64_t from_front = checked_dim(op, dim, self.dim());
  TORCH_CHECK_INDEX(index.dim() <= 1, op,
                    ": index must be a vector: expected at most 1 dimension, got shape ",
                    index.sym_sizes());
  check_index_dtype(op, "index", index.scalar_type());
  check_input_dtype(op, {"source", source}, self);
  check_shapes(op, from_front, self, index, source);
  TORCH_CHECK(converts(alpha, self.scalar_type()), op, ": alpha must fit input's dtype ",
              self.scalar_type(), ": expected a number in its range, got ", alpha);
  return {op, {self, from_front, index, source, alpha, mode}, checked_mode};
}

inline Call check(const IndexAdd& op) { return check(name_of<IndexAdd>(), op); }

// Checks the tensor that is written. It must not share memory with index or source, not even if it
// is the same tensor.
inline void check_written(const char* op, NamedTensor written, const Tensor& index,
                          const Tensor& source) {
  check_writable(op, written, {});
  for (const NamedTensor& input : {NamedTensor{"index", index}, NamedTensor{"source", source}}) {
    if (has_symbolic_shape(written.tensor) || has_symbolic_shape(input.tensor)) continue;
    const auto status = at::get_overlap_status(written.tensor, input.tensor);
    TORCH_CHECK(status != at::MemOverlapStatus::Partial && status != at::MemOverlapStatus::Full, op,
                ": ", written.name, " must not share memory with ", input.name,
                ": expected separate memory, got an overlap (clone() one)");
  }
}

inline Call check(const Inplace<IndexAdd>& given) {
  const Call call = check(name_of<Inplace<IndexAdd>>(), given.in);
  check_written(call.name, {"input", given.self}, call.op.index, call.op.source);
  return call;
}

// `out` may be self itself, but it must not overlap a part of self.
inline Call check(const Out<IndexAdd>& given) {
  const Call call = check(given.in);
  const Tensor &self = call.op.self, &out = given.out;
  check_device_of(call.name, {"out", out}, {"input", self});
  check_input_dtype(call.name, {"out", out}, self);
  check_writable(call.name, {"out", out}, {{"input", self}});
  check_written(call.name, {"out", out}, call.op.index, call.op.source);
  return call;
}

template <typename Form>
IndexAdd checked(const Form& given) {
  return check(given).op;
}

}  // namespace gpuopt::index_add
