// The CUDA implementations of gpuopt::reduce_sum, reduce_mean, reduce_max and reduce_min. Each
// checks its arguments, describes them as a Problem, and calls a launcher.
#include <ATen/ATen.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/native/Resize.h>
#include <torch/library.h>

#include <limits>
#include <vector>

#include "binding/cuda_launch.h"
#include "binding/unfilled.h"
#include "reduce/binding/reduce_check.h"
#include "reduce/reduce.h"

namespace gpuopt::reduce {
namespace {

using at::Tensor;

Problem make_problem(const char* op, const Tensor& self, const Reduction& reduction,
                     const Tensor& out) {
  Problem problem;
  problem.in = self.const_data_ptr();
  problem.out = out.mutable_data_ptr();
  problem.in_dtype = to_dtype(op, self.scalar_type());
  problem.dtype = to_dtype(op, reduction.dtype);
  const bool keepdim = out.dim() == self.dim();
  int64_t kept = 0;  // kept dimensions so far: the next dimension of out without keepdim
  for (int64_t d = 0; d < self.dim(); ++d) {
    const bool reduced = reduction.mask[d];
    const int64_t own = keepdim ? d : kept;
    if (!reduced) ++kept;
    if (self.size(d) == 1) continue;
    problem.dims[problem.num_dims++] = {self.size(d), self.stride(d), reduced ? 0 : out.stride(own),
                                        reduced};
  }
  return problem;
}

// A call that its dimensions alone would split into more launches copies its values instead. The
// limit is not measured.
constexpr int64_t kMostSlices = 16;

// Copies self so that its reduced dimensions lie innermost. All kept dimensions then merge into
// one, and so do all reduced dimensions.
Tensor in_rows(const Tensor& self, const Reduction& reduction) {
  std::vector<int64_t> order, positions(self.dim());
  for (const bool reduced : {false, true}) {
    for (int64_t d = 0; d < self.dim(); ++d) {
      if (reduction.mask[d] != reduced) continue;
      positions[d] = static_cast<int64_t>(order.size());
      order.push_back(d);
    }
  }
  return self.permute(order).contiguous().permute(positions);
}

// Describes the call as a Problem and runs start(problem, device, workspace, stream).
template <typename Start>
void launch(const char* op, const Tensor& self, const Reduction& reduction, const Tensor& out,
            Start&& start) {
  const c10::cuda::CUDAGuard guard(self.device());
  TensorWorkspace workspace;
  Problem problem = make_problem(op, self, reduction, out);
  Tensor copy;
  if (slices_of(problem) > kMostSlices) {
    copy = in_rows(self, reduction);
    problem = make_problem(op, copy, reduction, out);
  }
  const cudaStream_t stream = c10::cuda::getCurrentCUDAStream();
  check_launch(op, start(problem, Device{sm_count()}, workspace, stream));
}

int64_t values_per_result(const Tensor& self, const Reduction& reduction) {
  int64_t count = 1;
  for (int64_t d = 0; d < self.dim(); ++d) {
    if (reduction.mask[d]) count *= self.size(d);
  }
  return count;
}

// No kernel reads uint16, uint32, uint64 and float8: they are converted to a copy first.
bool is_converted(const Tensor& self) {
  return at::isBarebonesUnsignedType(self.scalar_type()) || at::isFloat8Type(self.scalar_type());
}

// Computes sums or means. Empty sums are 0 and empty means NaN.
void sum_into(const char* op, const Tensor& self, const Reduction& reduction, bool is_mean,
              const Tensor& out) {
  if (out.numel() == 0) return;
  const int64_t count = values_per_result(self, reduction);
  if (count == 0) {
    out.fill_(is_mean ? std::numeric_limits<double>::quiet_NaN() : 0.0);
    return;
  }
  check_memory(op, {{"self", self}, {"out", out}});
  const Tensor values = is_converted(self) ? self.to(reduction.dtype) : self;
  launch(
      op, values, reduction, out,
      [&](const Problem& problem, const Device& device, Workspace& workspace, cudaStream_t stream) {
        return sum(problem, is_mean ? static_cast<double>(count) : 1.0, device, workspace, stream);
      });
}

using Extremum = cudaError_t (*)(const Problem&, const Device&, Workspace&, cudaStream_t);

void extremum_into(const char* op, Extremum extremum, const Tensor& self,
                   const Reduction& reduction, const Tensor& out) {
  if (out.numel() == 0) return;
  check_memory(op, {{"self", self}, {"out", out}});
  launch(op, self, reduction, out, extremum);
}

// Refuses dtypes that no kernel supports. Must be called before out is written or resized.
void check_dtypes(const char* op, const Tensor& self, const Reduction& reduction, bool is_mean) {
  if (!is_converted(self)) (void)to_dtype(op, self.scalar_type());
  (void)to_dtype(op, reduction.dtype);
  // As in ATen: its mean kernel has no complex32, and it doesn't call the kernel for an empty self.
  TORCH_CHECK_NOT_IMPLEMENTED(!is_mean || reduction.dtype != at::kComplexHalf || self.numel() == 0,
                              op, " (CUDA) is not implemented for ", reduction.dtype);
}

void check_ordered(const char* op, const Tensor& self) {
  TORCH_CHECK_NOT_IMPLEMENTED(!self.is_complex(), op, " (CUDA) is not implemented for ",
                              self.scalar_type(), ": self must have a dtype with an order");
  (void)to_dtype(op, self.scalar_type());
}

Tensor make_result(const Tensor& self, const Reduction& reduction) {
  return unfilled(reduction.shape, self.options().dtype(reduction.dtype));
}

// Calls into(out). If out may overlap self, calls into(temporary) instead and copies the temporary
// to out after self has been read.
template <typename Into>
Tensor& write(const Tensor& self, const Reduction& reduction, Tensor& out, Into&& into) {
  const bool apart =
      !out.is_alias_of(self) || (out.sizes().equals(reduction.shape) &&
                                 at::get_overlap_status(out, self) == at::MemOverlapStatus::No);
  if (apart) {
    at::native::resize_output(out, reduction.shape);
    into(out);
    return out;
  }
  const Tensor result = make_result(self, reduction);
  into(result);
  at::native::resize_output(out, reduction.shape);
  return out.copy_(result);
}

using Dims = at::OptionalIntArrayRef;
using DTypeOption = std::optional<at::ScalarType>;

Tensor sum_cuda(const Tensor& self, Dims dim, bool keepdim, DTypeOption dtype) {
  constexpr const char* op = "gpuopt::reduce_sum";
  const Reduction reduction = check_sum(self, dim, keepdim, dtype);
  check_dtypes(op, self, reduction, /*is_mean=*/false);
  Tensor out = make_result(self, reduction);
  sum_into(op, self, reduction, /*is_mean=*/false, out);
  return out;
}

Tensor& sum_out_cuda(const Tensor& self, Dims dim, bool keepdim, DTypeOption dtype, Tensor& out) {
  constexpr const char* op = "gpuopt::reduce_sum";
  const Reduction reduction = check_sum_out(self, dim, keepdim, dtype, out);
  check_dtypes(op, self, reduction, /*is_mean=*/false);
  return write(self, reduction, out, [&](const Tensor& result) {
    sum_into(op, self, reduction, /*is_mean=*/false, result);
  });
}

Tensor mean_cuda(const Tensor& self, Dims dim, bool keepdim, DTypeOption dtype) {
  constexpr const char* op = "gpuopt::reduce_mean";
  const Reduction reduction = check_mean(self, dim, keepdim, dtype);
  check_dtypes(op, self, reduction, /*is_mean=*/true);
  Tensor out = make_result(self, reduction);
  sum_into(op, self, reduction, /*is_mean=*/true, out);
  return out;
}

Tensor& mean_out_cuda(const Tensor& self, Dims dim, bool keepdim, DTypeOption dtype, Tensor& out) {
  constexpr const char* op = "gpuopt::reduce_mean";
  const Reduction reduction = check_mean_out(self, dim, keepdim, dtype, out);
  check_dtypes(op, self, reduction, /*is_mean=*/true);
  return write(self, reduction, out, [&](const Tensor& result) {
    sum_into(op, self, reduction, /*is_mean=*/true, result);
  });
}

Tensor max_cuda(const Tensor& self, Dims dim, bool keepdim) {
  constexpr const char* op = "gpuopt::reduce_max";
  const Reduction reduction = check_extremum(op, self, dim, keepdim);
  check_ordered(op, self);
  Tensor out = make_result(self, reduction);
  extremum_into(op, max, self, reduction, out);
  return out;
}

Tensor& max_out_cuda(const Tensor& self, Dims dim, bool keepdim, Tensor& out) {
  constexpr const char* op = "gpuopt::reduce_max";
  const Reduction reduction = check_extremum_out(op, self, dim, keepdim, out);
  check_ordered(op, self);
  return write(self, reduction, out,
               [&](const Tensor& result) { extremum_into(op, max, self, reduction, result); });
}

Tensor min_cuda(const Tensor& self, Dims dim, bool keepdim) {
  constexpr const char* op = "gpuopt::reduce_min";
  const Reduction reduction = check_extremum(op, self, dim, keepdim);
  check_ordered(op, self);
  Tensor out = make_result(self, reduction);
  extremum_into(op, min, self, reduction, out);
  return out;
}

Tensor& min_out_cuda(const Tensor& self, Dims dim, bool keepdim, Tensor& out) {
  constexpr const char* op = "gpuopt::reduce_min";
  const Reduction reduction = check_extremum_out(op, self, dim, keepdim, out);
  check_ordered(op, self);
  return write(self, reduction, out,
               [&](const Tensor& result) { extremum_into(op, min, self, reduction, result); });
}

TORCH_LIBRARY_IMPL(gpuopt, CUDA, m) {
  m.impl("reduce_sum", sum_cuda);
  m.impl("reduce_sum.out", sum_out_cuda);
  m.impl("reduce_mean", mean_cuda);
  m.impl("reduce_mean.out", mean_out_cuda);
  m.impl("reduce_max", max_cuda);
  m.impl("reduce_max.out", max_out_cuda);
  m.impl("reduce_min", min_cuda);
  m.impl("reduce_min.out", min_out_cuda);
}

}  // namespace
}  // namespace gpuopt::reduce
