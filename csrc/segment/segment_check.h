// Checks the arguments of reductions of segments. The CUDA, CPU and Meta kernels and the batching
// rules all call these functions.
#pragma once

#include <climits>
#include <cmath>

#include "binding/check.h"
#include "binding/plain.h"
#include "rows/binding/rows_reference.h"
#include "rows/rows_problem.h"
#include "segment/segment_ops.h"

namespace gpuopt::segment {

using rows::Reduce;

inline Reduce check_reduce(const char* op, std::string_view reduce) {
  if (reduce == "sum") return Reduce::kSum;
  if (reduce == "mean") return Reduce::kMean;
  if (reduce == "max") return Reduce::kMax;
  if (reduce == "min") return Reduce::kMin;
  TORCH_CHECK_VALUE(reduce == "prod", op,
                    ": reduce must be a known word: expected \"sum\", \"mean\", \"max\", \"min\" "
                    "or \"prod\", got \"",
                    reduce, "\"");
  return Reduce::kProd;
}

inline bool is_extremum(Reduce reduce) { return reduce == Reduce::kMax || reduce == Reduce::kMin; }

// The result of a segment without entries.
inline double empty_of(Reduce reduce, std::optional<double> empty) {
  return empty.value_or(reduce == Reduce::kProd ? 1 : 0);
}

inline bool is_real_float(const Tensor& x) { return gpuopt::is_real_float(x.scalar_type()); }

// Whether an integer dtype has the number. Conversions of numbers out of range differ between the
// CPU and the GPU.
inline bool holds(at::ScalarType dtype, double number) {
  const bool is_signed = dtype != at::kByte;
  const int bits = 8 * static_cast<int>(c10::elementSize(dtype)) - (is_signed ? 1 : 0);
  const double end = std::ldexp(1.0, bits);
  return number == std::trunc(number) && number < end && number >= (is_signed ? -end : 0);
}

inline bool is_signed_or_byte(const Tensor& x) {
  return at::isIntegralType(x.scalar_type(), /*includeBool=*/false) &&
         !at::isBarebonesUnsignedType(x.scalar_type());
}

// The dtype in which values are reduced on the CPU.
inline at::ScalarType compute_type(const Tensor& x) {
  return is_signed_or_byte(x) ? at::kLong : rows::compute_type(x);
}

inline c10::SymInt segments_of(const Tensor& offsets) { return offsets.sym_size(0) - 1; }

// `first` is the tensor whose device the offsets must be on.
inline void check_offsets(const char* op, const Tensor& offsets, NamedTensor first) {
  TORCH_CHECK(first.tensor.dim() > 0, op, ": ", first.name,
              " must have entries: expected at least 1 dimension, got shape []");
  check_index_dtype(op, "offsets", offsets.scalar_type());
  TORCH_CHECK(offsets.dim() == 1, op,
              ": offsets must be a vector: expected 1 dimension, got shape ", offsets.sym_sizes());
  TORCH_CHECK(TORCH_GUARD_OR_TRUE(offsets.sym_size(0).sym_ge(1)), op,
              ": offsets must have one entry more than there are segments: expected at least 1, "
              "got 0");
  check_device_of(op, {"offsets", offsets}, first);
}

inline Reduce check(const char* op, const SegmentReduce& call) {
  const Reduce reduce = check_reduce(op, call.reduce);
  TORCH_CHECK_TYPE(is_real_float(call.data) || is_signed_or_byte(call.data), op,
                   ": data must be real numbers: expected a floating-point or integer dtype, got ",
                   call.data.scalar_type());
  TORCH_CHECK_VALUE(
      is_real_float(call.data) || holds(call.data.scalar_type(), call.empty.value_or(0)), op,
      ": empty must be a number of data's dtype: expected one of ", call.data.scalar_type(),
      ", got ", call.empty.value_or(0));
  check_offsets(op, call.offsets, {"data", call.data});
  return reduce;
}
inline Reduce check(const SegmentReduce& call) { return check(name_of<SegmentReduce>(), call); }

inline Reduce check(const SegmentReduceArg& call) {
  const char* op = name_of<SegmentReduceArg>();
  const Reduce reduce = check(op, call.values());
  TORCH_CHECK_VALUE(is_extremum(reduce), op,
                    ": reduce must select an entry: expected \"max\" or \"min\", got \"",
                    call.reduce, "\"");
  return reduce;
}

inline void check(const char* op, const SegmentExpand& call) {
  check_offsets(op, call.offsets, {"rows", call.rows});
  const c10::SymInt rows = call.rows.sym_size(0), segments = segments_of(call.offsets);
  TORCH_SYM_CHECK(rows.sym_eq(segments), op, ": rows must have one row for each segment: expected ",
                  segments, ", got ", rows);
  TORCH_CHECK(TORCH_GUARD_OR_TRUE(call.entries.sym_ge(0)), op,
              ": entries must not be negative: expected at least 0, got ", call.entries);
}
inline void check(const SegmentExpand& call) { check(name_of<SegmentExpand>(), call); }

inline void check(const SegmentSelect& call) {
  const char* op = name_of<SegmentSelect>();
  check(op, call.expand());
  check_dtype_of(op, {"arg", call.arg}, {"offsets", call.offsets});
}

inline void check_float(const char* op, NamedTensor argument) {
  TORCH_CHECK_TYPE(is_real_float(argument.tensor), op, ": ", argument.name,
                   " must be floating-point: expected float16, bfloat16, float32 or float64, got ",
                   argument.tensor.scalar_type());
}

inline void check(const SegmentSoftmax& call) {
  const char* op = name_of<SegmentSoftmax>();
  check_float(op, {"src", call.src});
  check_offsets(op, call.offsets, {"src", call.src});
}

inline void check(const SegmentSoftmaxBackward& call) {
  const char* op = name_of<SegmentSoftmaxBackward>();
  check_float(op, {"result", call.result});
  check_offsets(op, call.offsets, {"result", call.result});
}

// Returns the dtype of the results.
inline at::ScalarType check(const GroupBy& call) {
  const char* op = name_of<GroupBy>();
  check_index_dtype(op, "index", call.index.scalar_type());
  TORCH_CHECK(call.index.dim() == 1, op,
              ": index must be a vector: expected 1 dimension, got shape ", call.index.sym_sizes());
  TORCH_CHECK(TORCH_GUARD_OR_TRUE(call.bins.sym_ge(0)), op,
              ": bins must not be negative: expected at least 0, got ", call.bins);
  const bool fits = TORCH_GUARD_OR_TRUE(call.index.sym_numel().sym_le(INT_MAX)) &&
                    TORCH_GUARD_OR_TRUE(call.bins.sym_lt(INT_MAX));
  const at::ScalarType dtype = call.dtype.value_or(fits ? at::kInt : at::kLong);
  check_index_dtype(op, "dtype", dtype);
  TORCH_CHECK(dtype == at::kLong || fits, op,
              ": dtype must hold the number of entries: expected Long for ", call.index.sym_numel(),
              " entries and ", call.bins, " bins, got Int");
  return dtype;
}

// Reads the index, so this is for CPU tensors.
inline void check_range(const char* op, const Tensor& index, int64_t bins) {
  if (index.numel() == 0) return;
  const auto least = index.min().item<int64_t>(), greatest = index.max().item<int64_t>();
  TORCH_CHECK_INDEX(least >= 0 && greatest < bins, op,
                    ": index must be in the range of the bins: expected values from 0 to ",
                    bins - 1, ", got ", least < 0 ? least : greatest);
}

}  // namespace gpuopt::segment
