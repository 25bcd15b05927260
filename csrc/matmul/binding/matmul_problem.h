// The product of batches of matrices that a call of matmul is.
#pragma once

#include <ATen/ATen.h>
#include <ATen/TensorUtils.h>

#include <optional>

#include "matmul/binding/matmul_check.h"
#include "matmul/matmul_plan.h"

namespace gpuopt::matmul {

// Matrices [batch][rows][columns]. `batch` is 1 for a matrix that all products share.
struct Lowered {
  Tensor a, b;
  at::DimVector sizes;  // of the result
};

// One operand for all products, or one for each, which at::expand and a reshape make. A reshape
// copies only where one stride does not step through the batch.
inline Tensor batch_of(const Tensor& matrices, at::IntArrayRef batch) {
  const int64_t rows = matrices.size(-2), columns = matrices.size(-1);
  if (matrices.numel() == rows * columns) return matrices.reshape({1, rows, columns});
  at::DimVector sizes(batch);
  sizes.append({rows, columns});
  return matrices.expand(sizes).reshape({c10::multiply_integers(batch), rows, columns});
}

// Operands have elements.
inline Lowered lower(const Tensor& self, const Tensor& other) {
  const Tensor x = self.dim() == 1 ? self.unsqueeze(0) : self;
  const Tensor y = other.dim() == 1 ? other.unsqueeze(1) : other;
  const at::DimVector batch =
      at::infer_size_dimvector(x.sizes().slice(0, x.dim() - 2), y.sizes().slice(0, y.dim() - 2));
  Lowered result{batch_of(x, batch), batch_of(y, batch), batch};
  if (self.dim() > 1) result.sizes.push_back(x.size(-2));
  if (other.dim() > 1) result.sizes.push_back(y.size(-1));
  // The rows of a batch are the rows of one matrix, if one stride steps through them.
  const Tensor& a = result.a;
  if (a.size(0) > 1 && result.b.size(0) == 1) {
    const at::DimVector rows{1, a.size(0) * a.size(1), a.size(2)};
    if (at::detail::computeStride(a.sizes(), a.strides(), rows).has_value()) {
      result.a = a.view(rows);
    }
  }
  return result;
}

inline Operand operand_of(const Tensor& matrices) {
  return {matrices.const_data_ptr<float>(), matrices.stride(1), matrices.stride(2),
          matrices.size(0) == 1 ? 0 : matrices.stride(0)};
}

// The matrices themselves, or a copy with rows that begin at multiples of 16 bytes.
inline Tensor readable(const Tensor& matrices) {
  const int64_t rows = matrices.size(1), columns = matrices.size(2);
  if (is_readable(operand_of(matrices), rows, columns)) return matrices;
  const Tensor copy =
      at::empty({matrices.size(0), rows, ceil_div<int64_t>(columns, 4) * 4}, matrices.options());
  return copy.narrow(2, 0, columns).copy_(matrices);
}

// A problem without addresses, which is enough to plan it. Nothing if a size has too many bits.
inline std::optional<Problem> problem_of(const Tensor& a, const Tensor& b) {
  constexpr int64_t kMost = 1 << 30;
  for (const int64_t size : {a.size(1), a.size(2), b.size(2)}) {
    if (size > kMost) return std::nullopt;
  }
  Problem problem;
  problem.a.batch_stride = a.size(0) == 1 ? 0 : 1;
  problem.b.batch_stride = b.size(0) == 1 ? 0 : 1;
  problem.batch = std::max(a.size(0), b.size(0));
  problem.m = static_cast<int32_t>(a.size(1));
  problem.k = static_cast<int32_t>(a.size(2));
  problem.n = static_cast<int32_t>(b.size(2));
  return problem;
}

}  // namespace gpuopt::matmul
