// The CUDA bindings of padding: a call -> Problem -> plan -> launcher, or ATen's kernels.
#include <ATen/ATen.h>
#include <ATen/ExpandUtils.h>

#include <cmath>
#include <cstring>

#include "binding/cuda_launch.h"
#include "binding/plain.h"
#include "binding/unfilled.h"
#include "pad/pad.h"
#include "pad/pad_aten.h"
#include "pad/pad_problem.h"

namespace gpuopt::pad {
namespace {

using at::Tensor;

// A new tensor for the result. A cropped one is ATen's clone of a view.
Tensor result_for(const Pad& op, at::IntArrayRef pad, at::IntArrayRef sizes) {
  const Tensor& self = op.self;
  const Mode mode = *mode_named(op.mode);
  const bool crops =
      std::all_of(pad.begin(), pad.end(), [](int64_t number) { return number <= 0; });
  if (mode != Mode::kConstant || !crops) {
    return unfilled(sizes, self.options().memory_format(format_of(mode, self)));
  }
  const Tensor view = self.as_strided(sizes, self.strides());
  return unfilled_strided(sizes,
                          view.is_non_overlapping_and_dense()
                              ? self.strides()
                              : at::IntArrayRef(at::infer_dense_strides(sizes, self.strides())),
                          self.options());
}

// A vector of values. fill_ converts the number, and refuses one that does not fit, as some 8-bit
// floats have no zero.
Fill vector_of(const std::optional<at::Scalar>& value, at::ScalarType dtype) {
  Fill fill;
  const at::Scalar number = value.value_or(0.0);
  const bool is_zero =
      !number.isComplex() && number.toDouble() == 0 && !std::signbit(number.toDouble());
  if (is_zero && !at::isFloat8Type(dtype)) return fill;
  const Tensor element =
      unfilled({2}, at::dtype(dtype)).fill_(number);  // of one, it does not refuse
  const size_t bytes = element.element_size();
  for (size_t at = 0; at < sizeof(fill); at += bytes) {
    std::memcpy(reinterpret_cast<char*>(fill.words) + at, element.const_data_ptr(), bytes);
  }
  return fill;
}

// Copies to indices of `out`. Returns false if the kernel does not support the sizes.
bool copy_to(const char* op, Mode mode, const Tensor& in, const Tensor& out, at::IntArrayRef before,
             const Fill& fill = {}) {
  const auto planned = [&](const Tensor& tensor) -> std::optional<CopyPlan> {
    std::optional<Problem> problem = problem_of(mode, tensor, out, before);
    if (!problem.has_value()) return std::nullopt;
    problem->fill = fill;
    return make_plan(*problem);
  };
  Tensor self = in;
  std::optional<CopyPlan> plan = planned(self);
  if (!plan.has_value()) {  // elements of rows may be apart
    self = in.contiguous(out.suggest_memory_format());
    plan = planned(self);
  }
  if (plan.has_value()) check_launch(op, copy(*plan, c10::cuda::getCurrentCUDAStream()));
  return plan.has_value();
}

// The numbers of new indices before each dimension.
at::DimVector before_of(at::IntArrayRef pad, int64_t rank) {
  at::DimVector before(rank, 0);
  for (size_t k = 0; k < pad.size() / 2; ++k) before[dim_of_pair(rank, k)] = pad[2 * k];
  return before;
}

Tensor pad_cuda(const Pad& op) {
  const char* name = name_of<Pad>();
  const at::SymDimVector checked = check(op);
  check_memory(name, {{"input", op.self}});
  if (op.self.numel() == 0) return by_aten(op);
  const c10::cuda::CUDAGuard guard(op.self.device());
  const at::IntArrayRef pad = C10_AS_INTARRAYREF_SLOW(op.pad);
  const Tensor out = result_for(op, pad, C10_AS_INTARRAYREF_SLOW(checked));
  if (out.numel() == 0) return out;
  const bool done = copy_to(name, *mode_named(op.mode), op.self.resolve_conj().resolve_neg(), out,
                            before_of(pad, out.dim()), vector_of(op.value, out.scalar_type()));
  return done ? out : by_aten(op);
}

Tensor pad_backward_cuda(const PadBackward& op) {
  const char* name = name_of<PadBackward>();
  const Mode mode = checked_mode(name, op.mode);
  check_memory(name, {{"grad", op.grad}});
  if (!is_plain(op.grad) || !is_real_float(op.grad.scalar_type())) return sum_borders(op);
  const c10::cuda::CUDAGuard guard(op.grad.device());
  const auto format = op.grad.suggest_memory_format();
  const Tensor grad = op.grad.contiguous(format);
  const Tensor out =
      unfilled(C10_AS_INTARRAYREF_SLOW(op.size), grad.options().memory_format(format));
  const at::DimVector before = before_of(C10_AS_INTARRAYREF_SLOW(op.pad), out.dim());
  const auto problem = problem_of(mode, grad, out, before, /*reads_padded=*/true);
  const auto plan = problem.has_value() ? make_sum_plan(*problem) : std::nullopt;
  if (!plan.has_value()) return sum_borders(op);
  const DType dtype = to_dtype(name, grad.scalar_type());
  check_launch(name, sum(*plan, dtype, c10::cuda::getCurrentCUDAStream()));
  return out;
}

// Shifts of one dimension add up.
Tensor roll_cuda(const Roll& op) {
  const at::IntArrayRef shifts = C10_AS_INTARRAYREF_SLOW(op.shifts);
  const c10::cuda::CUDAGuard guard(op.self.device());
  const Tensor out = unfilled(op.self.sizes(), op.self.options());
  const bool is_flat = op.dims.empty();
  const Tensor self = is_flat ? op.self.reshape({-1}) : op.self;
  at::DimVector before(self.dim(), 0);
  for (size_t k = 0; k < shifts.size(); ++k) {
    const int64_t d = is_flat ? 0 : *wrapped(op.dims[k], self);
    const int64_t size = self.size(d);
    before[d] = ((before[d] + shifts[k] % size) % size + size) % size;
  }
  const bool done =
      copy_to(name_of<Roll>(), Mode::kCircular, self, is_flat ? out.view({-1}) : out, before);
  return done ? out : roll_by_aten(op);
}

// The caller has checked that the tensors are plain and on one device, of one dtype and one rank.
Tensor cat_cuda(const Cat& op) {
  const auto tensors = op.tensors.materialize();
  const Tensor& first = tensors[0];
  const c10::cuda::CUDAGuard guard(first.device());
  const int64_t dim = *wrapped(op.dim, first);
  at::DimVector sizes(first.sizes());
  sizes[dim] = 0;
  for (const Tensor& tensor : tensors) sizes[dim] += tensor.size(dim);
  const Tensor out = unfilled(sizes, first.options().memory_format(format_of(tensors)));
  if (out.numel() == 0) return out;
  const std::optional<CopyPlan> plan = plan_of(tensors, dim, out);
  if (!plan.has_value()) return cat_by_aten(op);
  check_launch(name_of<Cat>(), copy(*plan, c10::cuda::getCurrentCUDAStream()));
  return out;
}

TORCH_LIBRARY_IMPL(gpuopt, CUDA, m) {
  impl<Pad, pad_cuda>(m);
  impl<PadBackward, pad_backward_cuda>(m);
  impl<Roll, roll_cuda>(m);
  impl<Cat, cat_cuda>(m);
}

}  // namespace
}  // namespace gpuopt::pad
