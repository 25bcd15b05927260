// The CUDA kernel of gpuopt_ladder::index_add_.
#include "binding/ladder_cuda.h"
#include "index_add/binding/index_add_check.h"
#include "index_add/ladder/index_add_ladder.h"

namespace gpuopt::index_add {
namespace {

using at::Tensor;

void check_dtypes(const LadderCall& call, const Tensor& self) {
  if (call.is("atomic_per_element")) {
    call.check_operand({"self", self}, {at::kFloat});
  } else if (call.is("half_atomic")) {
    call.check_operand({"self", self}, {at::kHalf});
  } else if (call.is("fast_half_atomic") || call.is("half2_pairs")) {
    call.check_operand({"self", self}, {at::kHalf, at::kBFloat16});
  } else {
    call.check_operand({"self", self}, {at::kFloat, at::kHalf, at::kBFloat16});
  }
}

// half2_pairs needs rows of an even number of values, aligned to 4 bytes.
void check_pairs(const LadderCall& call, NamedTensor rows) {
  TORCH_CHECK(rows.tensor.size(1) % 2 == 0, call.op_and_step(), ": ", rows.name,
              " must have rows of an even number of values, got shape ", rows.tensor.sizes());
  call.check_pairs(rows);
}

// vector_reductions needs rows of whole 16-byte vectors, aligned to 16 bytes.
void check_vecs(const LadderCall& call, NamedTensor rows) {
  const int64_t bytes = rows.tensor.size(1) * rows.tensor.element_size();
  TORCH_CHECK(bytes % kAccessBytes == 0, call.op_and_step(), ": ", rows.name,
              " must have rows of a multiple of ", kAccessBytes, " bytes, got rows of ", bytes,
              " bytes in shape ", rows.tensor.sizes());
  call.check_vecs(rows);
}

void check_operands(const LadderCall& call, const Tensor& self, const Tensor& index,
                    const Tensor& source) {
  check_dtypes(call, self);
  check(call.op(), IndexAdd{self, /*dim=*/0, index, source, /*alpha=*/1, "fast"});
  check_written(call.op(), {"self", self}, index, source);
  TORCH_CHECK(self.dim() == 2, call.op(), ": self must have 2 dimensions, got shape ",
              self.sizes());
  TORCH_CHECK(index.dim() == 1, call.op(), ": index must have 1 dimension, got shape ",
              index.sizes());
  call.check_operand({"index", index}, {at::kLong});
  call.check_operand({"source", source}, {self.scalar_type()});
  for (const NamedTensor& rows : {NamedTensor{"self", self}, NamedTensor{"source", source}}) {
    if (call.is("half2_pairs")) check_pairs(call, rows);
    if (call.is("vector_reductions")) check_vecs(call, rows);
  }
}

Tensor& index_add_step(const LadderCall& call, Tensor& self, const Tensor& index,
                       const Tensor& source) {
  check_operands(call, self, index, source);
  launch_step(
      call, ladder_index_add,
      LadderProblem{self.mutable_data_ptr(), source.const_data_ptr(),
                    index.const_data_ptr<int64_t>(), to_dtype(call.op(), self.scalar_type()),
                    self.size(0), self.size(1), index.numel()},
      current_device());
  return self;
}

Tensor& index_add_production(Tensor& self, const Tensor& index, const Tensor& source) {
  return handle<Inplace<IndexAdd>>().call(self, /*dim=*/0, index, source, /*alpha=*/1, "fast");
}

TORCH_LIBRARY_IMPL(gpuopt_ladder, CUDA, m) {
  impl_ladder(m, "index_add_", index_add_production, index_add_step);
}

}  // namespace
}  // namespace gpuopt::index_add
