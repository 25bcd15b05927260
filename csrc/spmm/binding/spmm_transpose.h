// For the bindings of transposes: their checks, and the parts of a kept one.
#pragma once

#include "spmm/binding/spmm_check.h"
#include "spmm/spmm_transpose.h"

namespace gpuopt::spmm {

// Rows of entries, and where the value of each entry is.
struct TransposedRows {
  Tensor ptr, index, entry;
};

// The numbers of a kept transpose in front of its rows.
inline int64_t fingerprint_numbers(const Tensor& ptr) {
  return static_cast<int64_t>(sizeof(Fingerprint)) / static_cast<int64_t>(ptr.element_size());
}

inline int64_t kept_numbers(const Tensor& ptr, const Tensor& index, int64_t columns) {
  return fingerprint_numbers(ptr) + columns + 1 + 2 * index.size(0);
}

inline TransposedRows parts_of(const Tensor& kept, const Tensor& index, int64_t columns) {
  const int64_t entries = index.size(0), front = kept.size(0) - 2 * entries - columns - 1;
  return {kept.narrow(0, front, columns + 1), kept.narrow(0, front + columns + 1, entries),
          kept.narrow(0, front + columns + 1 + entries, entries)};
}

inline void check(const TransposeKept& call) {
  const char* op = name_of<TransposeKept>();
  check_ptr(op, call.ptr);
  check_numbers(op, {"index", call.index}, call.ptr, "(entries)", std::nullopt);
  check_numbers(op, {"kept", call.kept}, call.ptr, "a fingerprint and a transpose",
                kept_numbers(call.ptr, call.index, call.columns));
}

inline void check(const SameNumbers& call) {
  const char* op = name_of<SameNumbers>();
  check_index_dtype(op, "numbers", call.numbers.scalar_type());
  TORCH_CHECK(call.state.scalar_type() == at::kLong && call.state.is_contiguous() &&
                  call.state.nbytes() == sizeof(Fingerprint),
              op, ": state must be a fingerprint: expected ", sizeof(Fingerprint) / 8,
              " neighbouring int64 numbers, got ", call.state.scalar_type(), " of shape ",
              call.state.sizes());
  check_device_of(op, {"state", call.state}, {"numbers", call.numbers});
}

}  // namespace gpuopt::spmm
