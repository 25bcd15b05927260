// Argument checks of index_select, and which calls the kernel supports. Exception types are those
// of torch.index_select on the CPU.
#pragma once

#include <optional>

#include "binding/check.h"
#include "binding/plain.h"
#include "index_select/index_select_ops.h"

namespace gpuopt::index_select {

// Returns dim, counted from the front.
inline int64_t check(const IndexSelect& call) {
  const char* op = name_of<IndexSelect>();
  const auto& [self, dim, index] = call;
  const int64_t from_front = checked_dim(op, dim, self.dim());
  check_device_of(op, {"index", index}, {"input", self});
  TORCH_CHECK_INDEX(index.dim() <= 1, op,
                    ": index must be a vector: expected at most 1 dimension, got shape ",
                    index.sym_sizes());
  check_index_dtype(op, "index", index.scalar_type());
  if (self.dim() == 0) {
    const auto entries = index.sym_numel();
    TORCH_SYM_CHECK(entries.sym_eq(1), op,
                    ": index must have one entry for an input without dimensions: expected 1, got ",
                    entries);
  }
  return from_front;
}

// Whether the kernel can read the tensors: a vector of indices, and values on one device.
inline bool is_supported(const at::Tensor& self, const at::Tensor& index) {
  return is_plain(self) && is_plain(index) && is_index(index) && index.dim() == 1 &&
         on_device_of(self, {index});
}

// The bytes of a row of the first dimension that has more than one slice. Nothing if that is not
// dimension `dim`, or if the kernel does not support the rows: they are not dense, or too long.
inline std::optional<int64_t> row_bytes(const at::Tensor& self, int64_t dim) {
  for (int64_t d = 0; d < dim; ++d) {
    if (self.size(d) != 1) return std::nullopt;
  }
  int64_t dense = 1;
  for (int64_t d = self.dim() - 1; d > dim; --d) {
    if (self.size(d) != 1 && self.stride(d) != dense) return std::nullopt;
    dense *= self.size(d);
  }
  const int64_t bytes = dense * static_cast<int64_t>(self.element_size());
  return bytes < int64_t{1} << 30 ? std::optional(bytes) : std::nullopt;
}

// What GatherRows reads: tables of rows, which dimensions before `dim` number.
struct Rows {
  int64_t tables = 1, table_stride = 0;  // elements from one table to the next
  int64_t bytes = 0;                     // of a row
};

// Nothing if entries of a row differ, if another size than that of `dim` is not self's, or if the
// kernel does not support the tables.
inline std::optional<Rows> rows_of(const at::Tensor& self, int64_t dim, const at::Tensor& index) {
  Rows rows;
  int64_t dense = 1;
  for (int64_t d = self.dim() - 1; d >= 0; --d) {
    const int64_t size = self.size(d);
    if (d != dim && index.size(d) != size) return std::nullopt;
    if (size == 1 || d == dim) continue;
    if (d > dim) {
      if (index.stride(d) != 0 || self.stride(d) != dense) return std::nullopt;
      dense *= size;
    } else {
      if (rows.tables == 1) rows.table_stride = self.stride(d);
      if (self.stride(d) != rows.tables * rows.table_stride) return std::nullopt;
      rows.tables *= size;
    }
  }
  rows.bytes = dense * static_cast<int64_t>(self.element_size());
  const int64_t entries = rows.tables * index.size(dim);
  const bool fits = rows.bytes < int64_t{1} << 30 && (rows.tables == 1 || entries < INT32_MAX);
  return fits ? std::optional(rows) : std::nullopt;
}

}  // namespace gpuopt::index_select
