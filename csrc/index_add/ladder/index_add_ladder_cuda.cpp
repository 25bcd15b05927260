// The CUDA kernel of gpuopt_ladder::index_add_.
#include <torch/library.h>

#include <string_view>

#include "binding/cuda_launch.h"
#include "binding/ladder.h"
#include "index_add/binding/index_add_check.h"
#include "index_add/ladder/index_add_ladder.h"

namespace gpuopt::index_add {
namespace {

constexpr const char* kOp = "index_add_";
constexpr const char* kFullName = "gpuopt_ladder::index_add_";

void check_dtypes(std::string_view step, const Tensor& self) {
  const auto check = [&](std::initializer_list<at::ScalarType> dtypes) {
    check_ladder_operand(kOp, "self", self, dtypes);
  };
  if (step == "atomic_per_element") {
    check({at::kFloat});
  } else if (step == "half_atomic") {
    check({at::kHalf});
  } else if (step == "fast_half_atomic" || step == "half2_pairs") {
    check({at::kHalf, at::kBFloat16});
  } else {
    check({at::kFloat, at::kHalf, at::kBFloat16});
  }
}

// half2_pairs needs rows of an even number of values, aligned to 4 bytes.
void check_pairs(const char* step, NamedTensor rows) {
  const auto address = reinterpret_cast<uintptr_t>(rows.tensor.const_data_ptr());
  TORCH_CHECK(rows.tensor.size(1) % 2 == 0, kFullName, ", step ", step, ": ", rows.name,
              " must have rows of an even number of values, got shape ", rows.tensor.sizes());
  TORCH_CHECK(address % 4 == 0, kFullName, ", step ", step, ": ", rows.name,
              " must begin at a multiple of 4 bytes, got a view that begins ", address % 4,
              " bytes behind one");
}

// vector_reductions needs rows of whole 16-byte vectors, aligned to 16 bytes.
void check_vecs(const char* step, NamedTensor rows) {
  const int64_t bytes = rows.tensor.size(1) * rows.tensor.element_size();
  TORCH_CHECK(bytes % kAccessBytes == 0, kFullName, ", step ", step, ": ", rows.name,
              " must have rows of a multiple of ", kAccessBytes, " bytes, got rows of ", bytes,
              " bytes in shape ", rows.tensor.sizes());
  check_ladder_vecs(kOp, step, rows.name, rows.tensor);
}

void check_operands(const char* step, const Tensor& self, const Tensor& index,
                    const Tensor& source) {
  check_dtypes(step, self);
  check(kFullName, IndexAdd{self, /*dim=*/0, index, source, /*alpha=*/1, "fast"});
  check_written(kFullName, {"self", self}, index, source);
  TORCH_CHECK(self.dim() == 2, kFullName, ": self must have 2 dimensions, got shape ",
              self.sizes());
  TORCH_CHECK(index.dim() == 1, kFullName, ": index must have 1 dimension, got shape ",
              index.sizes());
  check_ladder_operand(kOp, "index", index, {at::kLong});
  check_ladder_operand(kOp, "source", source, {self.scalar_type()});
  for (const NamedTensor& rows : {NamedTensor{"self", self}, NamedTensor{"source", source}}) {
    if (std::string_view(step) == "half2_pairs") check_pairs(step, rows);
    if (std::string_view(step) == "vector_reductions") check_vecs(step, rows);
  }
}

Tensor& index_add_cuda(Tensor& self, const Tensor& index, const Tensor& source, int64_t step) {
  check_step(kOp, step);
  if (is_production(kOp, step)) {
    return handle<Inplace<IndexAdd>>().call(self, /*dim=*/0, index, source, /*alpha=*/1, "fast");
  }
  check_operands(kLadder[step].name, self, index, source);
  const c10::cuda::CUDAGuard guard(self.device());
  const Device device = current_device();
  TensorWorkspace workspace;
  const LadderProblem problem{self.mutable_data_ptr(),
                              source.const_data_ptr(),
                              index.const_data_ptr<int64_t>(),
                              to_dtype(kOp, self.scalar_type()),
                              self.size(0),
                              self.size(1),
                              index.numel()};
  check_launch(kFullName, ladder_index_add(static_cast<int>(step), problem, device, workspace,
                                           c10::cuda::getCurrentCUDAStream()));
  return self;
}

TORCH_LIBRARY_IMPL(gpuopt_ladder, CUDA, m) { m.impl("index_add_", index_add_cuda); }

}  // namespace
}  // namespace gpuopt::index_add
