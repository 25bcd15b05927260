// What batching rules of operators with an index have in common.
#pragma once

#include "binding/vmap.h"

namespace gpuopt {

// Returns an operand with its batch dimension at `position`. An operand without dimensions gets one
// that can be indexed. An operand that all examples share is expanded, without a copy.
inline at::Tensor batched_at(const VmapLevel::Operand& operand, int64_t position,
                             const c10::SymInt& examples) {
  at::Tensor value = operand.value;
  if (operand.logical_dim() == 0) value = value.unsqueeze(-1);
  if (operand.batch_dim.has_value()) return value.movedim(*operand.batch_dim, position);
  value = value.unsqueeze(position);
  auto sizes = value.sym_sizes().vec();
  sizes[position] = examples;
  return value.expand_symint(sizes);
}

// Makes an index of (examples, entries) one into the concatenated rows of all examples. Entries out
// of range become -1, so that they do not reach the rows of another example.
inline at::Tensor fold_index(const at::Tensor& index, const c10::SymInt& examples,
                             const c10::SymInt& bins) {
  const at::Tensor own = index.to(at::kLong);
  const at::Tensor first =
      at::arange(at::Scalar(examples), own.options()).mul(at::Scalar(bins)).unsqueeze(1);
  const at::Tensor in_range = own.ge(0).logical_and(own.lt(at::Scalar(bins)));
  return at::where(in_range, own.add(first), -1).flatten();
}

}  // namespace gpuopt
