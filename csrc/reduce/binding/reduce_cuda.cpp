// The CUDA implementations of gpuopt::reduce_sum, reduce_mean, reduce_max and reduce_min. Each
// checks its arguments, describes them as a Problem, and launches its plan.
#include <ATen/ATen.h>
#include <ATen/OpMathType.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <optional>
#include <vector>

#include "binding/cuda_launch.h"
#include "binding/unfilled.h"
#include "reduce/binding/reduce_check.h"
#include "reduce/reduce.h"

namespace gpuopt::reduce {
namespace {

using at::Tensor;

template <typename Op>
constexpr Operation kOperation = std::same_as<Op, ReduceMax>   ? Operation::kMax
                                 : std::same_as<Op, ReduceMin> ? Operation::kMin
                                                               : Operation::kSum;

template <typename Op>
Problem make_problem(const Tensor& self, const Reduction& reduction, const Tensor& out) {
  const char* op = name_of<Op>();
  Problem problem;
  problem.operation = kOperation<Op>;
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

int64_t values_per_result(const Tensor& self, const Reduction& reduction) {
  int64_t count = 1;
  for (int64_t d = 0; d < self.dim(); ++d) {
    if (reduction.mask[d]) count *= self.size(d);
  }
  return count;
}

// Launches the plan of values that are reduced at once.
template <typename Op>
void launch_reduction(const Tensor& self, const Reduction& reduction, double divisor,
                      const Tensor& out) {
  Tensor values = self;
  Problem problem = make_problem<Op>(values, reduction, out);
  if (slices_of(problem) > kMostSlices) {
    values = in_rows(values, reduction);
    problem = make_problem<Op>(values, reduction, out);
  }
  problem.divisor = divisor;
  record("reduce", problem);
  TensorWorkspace workspace;
  check_launch(name_of<Op>(), launch(make_plan(problem, current_device()), workspace,
                                     c10::cuda::getCurrentCUDAStream()));
}

// Where kept and reduced dimensions alternate in memory, blocks read short pieces far apart. So the
// largest group of neighbouring reduced dimensions is reduced first, if it has at least 8 values:
// (33,25,257,257) in bf16 over dims 0 and 2 takes 53 us so, and 104 in ATen (H200). The limits
// below are not measured.
constexpr int64_t kFirstValues = 8;         // of a result of the first step, at least
constexpr size_t kSmallestSteps = 4 << 20;  // bytes
constexpr int64_t kLongPiece = 512;         // bytes that are reduced side by side

// The dimensions that are reduced first, if there are two steps.
std::optional<DimMask> first_step(const Tensor& self, const Reduction& reduction) {
  // Values are rounded to a half type before they are added.
  const bool is_rounded =
      self.scalar_type() != reduction.dtype && at::toOpMathType(reduction.dtype) != reduction.dtype;
  if (self.nbytes() < kSmallestSteps || self.dim() > DimMask::kMaxRank || is_rounded) {
    return std::nullopt;
  }
  std::vector<int64_t> order;  // from the outermost dimension in memory
  for (int64_t d = 0; d < self.dim(); ++d) {
    if (self.size(d) > 1) order.push_back(d);
  }
  std::stable_sort(order.begin(), order.end(),
                   [&](int64_t a, int64_t b) { return self.stride(a) > self.stride(b); });
  DimMask largest;
  int64_t most = 0, groups = 0, piece = 0;
  for (auto first = order.begin(); first != order.end();) {
    const bool is_reduced = reduction.mask[*first];
    const auto last = std::find_if(first, order.end(),
                                   [&](int64_t d) { return reduction.mask[d] != is_reduced; });
    DimMask group;
    int64_t values = 1;
    for (; first != last; ++first) group.set(*first), values *= self.size(*first);
    piece = is_reduced ? values * static_cast<int64_t>(self.element_size()) : 0;
    if (!is_reduced) continue;
    ++groups;
    if (values > most) largest = group, most = values;
  }
  const bool is_apart = groups > 1 && piece < kLongPiece;
  return is_apart && most >= kFirstValues ? std::optional(largest) : std::nullopt;
}

// The sums of the first step have the dtype in which kernels add. They lie in memory as self.
template <typename Op>
Tensor reduced_first(const Tensor& self, const DimMask& mask, at::ScalarType dtype) {
  Reduction step;
  step.mask = mask;
  step.dtype = Extremum<Op> ? dtype : at::toOpMathType(dtype);
  for (int64_t d = 0; d < self.dim(); ++d) step.shape.push_back(mask[d] ? 1 : self.size(d));
  std::vector<int64_t> order(self.dim()), strides(self.dim());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](int64_t a, int64_t b) { return self.stride(a) < self.stride(b); });
  int64_t values = 1;
  for (const int64_t d : order) strides[d] = values, values *= step.shape[d];
  const Tensor out = at::empty_strided(step.shape, strides, self.options().dtype(step.dtype));
  launch_reduction<Op>(self, step, 1, out);
  return out;
}

// Empty sums are 0 and empty means NaN. check() has refused empty extrema.
template <typename Op>
void reduce_into(const Op& op, const Reduction& reduction, const Tensor& out) {
  if (out.numel() == 0) return;
  const Tensor& self = op.self;
  const int64_t count = values_per_result(self, reduction);
  if (count == 0) {
    out.fill_(kIsMean<Op> ? std::numeric_limits<double>::quiet_NaN() : 0.0);
    return;
  }
  check_memory(name_of<Op>(), {{"input", self}, {"out", out}});
  const c10::cuda::CUDAGuard guard(self.device());
  const Tensor values = is_converted(self.scalar_type()) ? self.to(reduction.dtype) : self;
  const double divisor = kIsMean<Op> ? static_cast<double>(count) : 1;
  if (const auto mask = first_step(values, reduction)) {
    const Tensor steps = reduced_first<Op>(values, *mask, reduction.dtype);
    Reduction rest = reduction;
    rest.dtype = steps.scalar_type();
    const bool is_rounded = rest.dtype != reduction.dtype;
    const Tensor wide = is_rounded ? unfilled(out.sizes(), steps.options()) : out;
    launch_reduction<Op>(steps, rest, divisor, wide);
    if (is_rounded) out.copy_(wide);
    return;
  }
  launch_reduction<Op>(values, reduction, divisor, out);
}

// Refuses dtypes that no kernel supports. Must be called before out is written or resized.
template <typename Op>
void check_dtypes(const Op& op, const Reduction& reduction) {
  const char* name = name_of<Op>();
  const Tensor& self = op.self;
  if constexpr (Extremum<Op>) {
    TORCH_CHECK_NOT_IMPLEMENTED(!self.is_complex(), name, " (CUDA) is not implemented for ",
                                self.scalar_type(), ": input must have a dtype with an order");
    (void)to_dtype(name, self.scalar_type());
    return;
  }
  if (!is_converted(self.scalar_type())) (void)to_dtype(name, self.scalar_type());
  (void)to_dtype(name, reduction.dtype);
  // As in ATen: its mean kernel has no complex32, and it doesn't call the kernel for an empty self.
  TORCH_CHECK_NOT_IMPLEMENTED(
      !kIsMean<Op> || reduction.dtype != at::kComplexHalf || self.numel() == 0, name,
      " (CUDA) is not implemented for ", reduction.dtype);
}

template <typename Op>
Tensor reduce_cuda(const Op& op) {
  const Reduction reduction = check(op);
  check_dtypes(op, reduction);
  const Tensor out = unfilled(reduction.shape, op.self.options().dtype(reduction.dtype));
  reduce_into(op, reduction, out);
  return out;
}

template <typename Op>
Tensor& reduce_out_cuda(const Out<Op>& call) {
  const auto& [op, out] = call;
  const Reduction reduction = check(call);
  check_dtypes(op, reduction);
  return write_out(out, reduction.shape, is_apart(out, op.self, reduction.shape),
                   [&](const Tensor& result) { reduce_into(op, reduction, result); });
}

TORCH_LIBRARY_IMPL(gpuopt, CUDA, m) {
  Ops::for_each([&]<typename Op>() {
    impl<Op, reduce_cuda<Op>>(m);
    impl<Out<Op>, reduce_out_cuda<Op>>(m);
  });
}

}  // namespace
}  // namespace gpuopt::reduce
