// The CUDA implementation of selective scans: brings the arguments into a layout that the kernels
// support, describes them as a Problem, and launches its plan.
#include <ATen/ATen.h>

#include "binding/cuda_launch.h"
#include "binding/unfilled.h"
#include "reduce/binding/reduce_ops.h"
#include "selective_scan/binding/selective_scan_reference.h"
#include "selective_scan/selective_scan.h"
#include "selective_scan/selective_scan_plan.h"

namespace gpuopt::selective {
namespace {

// The arguments of a call as the kernels read them. Tensors that are laid out otherwise, and small
// ones of other dtypes, are copied.
struct Call {
  Tensor u, delta, z, A, B, C, D, delta_bias;  // undefined if not given
  at::ScalarType dtype, compute;               // of u, delta and z; and of everything else
  bool channels_last;
  Problem problem;

  explicit Call(const SelectiveScan& in) : compute(in.compute_type()) {
    check_memory(kScanOp,
                 {{"u", in.u}, {"delta", in.delta}, {"A", in.A}, {"B", in.B}, {"C", in.C}});
    for (const auto& [name, option] :
         {std::pair{"D", &in.D}, {"z", &in.z}, {"delta_bias", &in.delta_bias}}) {
      if (is_given(*option)) check_memory(kScanOp, {{name, **option}});
    }
    const bool constant = in.B.dim() == 2 || in.C.dim() == 2;
    dtype = in.u.scalar_type();
    const auto differs = [&](const Tensor& x) { return x.scalar_type() != dtype; };
    const bool mixed = differs(in.delta) || (is_given(in.z) && differs(*in.z));
    if (constant || mixed) dtype = compute;
    channels_last = is_channels_last(in.u);
    u = sequence(in.u);
    delta = sequence(in.delta);
    if (is_given(in.z)) z = sequence(*in.z);
    A = in.A.to(compute).contiguous();
    if (is_given(in.D)) D = in.D->to(compute).contiguous();
    if (is_given(in.delta_bias)) delta_bias = in.delta_bias->to(compute).contiguous();
    B = addressable(in.B);
    C = addressable(in.C);
    problem.batch = u.size(0);
    problem.channels = u.size(1);
    problem.length = u.size(2);
    problem.states = A.size(1);
    for (const Tensor& x : {B, C}) {
      if (x.dim() == 4) problem.groups = std::max(problem.groups, x.size(1));
    }
    problem.dtype = to_dtype(kScanOp, dtype);
    problem.softplus = in.softplus;
    problem.channels_last = channels_last;
    problem.u = view(u);
    problem.delta = view(delta);
    if (z.defined()) problem.z = view(z);
    problem.B = matrix(B);
    problem.C = matrix(C);
    problem.A = A.const_data_ptr();
    if (D.defined()) problem.D = D.const_data_ptr();
    if (delta_bias.defined()) problem.delta_bias = delta_bias.const_data_ptr();
  }

  bool is_empty() const { return u.numel() == 0; }

  // A tensor (batch, dim, length) whose innermost dimension is that of u.
  Tensor sequence(const Tensor& x) const {
    const Tensor typed = x.to(dtype);
    const int64_t inner = channels_last ? 1 : 2;
    if (typed.stride(inner) == 1 || typed.size(inner) == 1) return typed;
    return channels_last ? typed.transpose(1, 2).contiguous().transpose(1, 2) : typed.contiguous();
  }

  // B or C, copied if its strides are too large for the kernels.
  static Tensor addressable(const Tensor& x) {
    const auto small = [&](int64_t dim) { return x.stride(dim) <= kMaxMatrixStride; };
    if (x.dim() == 2 || (small(-1) && small(-2))) return x;
    if (x.size(-1) <= kMaxMatrixStride) return x.contiguous();
    return x.transpose(-1, -2).contiguous().transpose(-1, -2);
  }

  // A dense result in this layout.
  Tensor result(at::ScalarType type) const {
    const auto options = u.options().dtype(type);
    if (!channels_last) return unfilled(u.sizes(), options);
    return unfilled({u.size(0), u.size(2), u.size(1)}, options).transpose(1, 2);
  }

  static Sequence view(const Tensor& x) {
    // The kernels only read what is an input.
    return {const_cast<void*>(x.const_data_ptr()), x.stride(0), x.stride(1), x.stride(2)};
  }
  static Sequence written(const Tensor& x) {
    return {x.mutable_data_ptr(), x.stride(0), x.stride(1), x.stride(2)};
  }
  static Matrix matrix(const Tensor& x) {
    Matrix found{x.const_data_ptr(), to_dtype(kScanOp, x.scalar_type())};
    if (x.dim() == 2) {
      found.constant = true;
      found.group = x.stride(0);
      found.state = x.stride(1);
    } else {
      found.batch = x.stride(0);
      found.group = x.dim() == 4 && x.size(1) > 1 ? x.stride(1) : 0;
      found.state = x.stride(-2);
      found.position = x.stride(-1);
    }
    return found;
  }
};

Outputs scan_cuda(const SelectiveScan& in) {
  check_scan(in);
  const c10::cuda::CUDAGuard guard(in.u.device());
  Call call(in);
  if (!is_supported(call.problem)) return scan_by_aten(in);
  const auto options = in.u.options().dtype(call.compute);
  const Tensor out = call.result(call.dtype);
  const at::DimVector states{in.u.size(0), in.u.size(1), in.A.size(1)};
  if (call.is_empty()) return {out.to(in.u.scalar_type()), at::zeros(states, options)};
  const Tensor last = unfilled(states, options);
  call.problem.out = Call::written(out);
  call.problem.last_state = last.mutable_data_ptr();
  record("selective_scan.forward", call.problem);
  TensorWorkspace workspace;
  check_launch(kScanOp,
               launch(plan_forward(call.problem), workspace, c10::cuda::getCurrentCUDAStream()));
  return {out.to(in.u.scalar_type()), last};
}

// Adds parts, in a fixed order, and returns the sum as a dense tensor of the dtype.
Tensor sum_of(const Tensor& parts, at::IntArrayRef dims, at::ScalarType dtype) {
  return gpuopt::reduce_sum(parts, dims).to(dtype);
}

// The gradient of B or C out of the blocks' parts: (batch, groups, parts, length, n).
Tensor matrix_gradient(const Tensor& matrix, const Tensor& parts) {
  const auto dtype = matrix.scalar_type();
  if (matrix.dim() == 2) return sum_of(parts, {0}, dtype);
  if (matrix.dim() == 3) return sum_of(parts, {1, 2}, dtype).transpose(1, 2).contiguous();
  if (matrix.size(1) != parts.size(1)) {  // one group for all
    return sum_of(parts, {1, 2}, dtype).transpose(1, 2).unsqueeze(1).contiguous();
  }
  return sum_of(parts, {2}, dtype).transpose(2, 3).contiguous();
}

InputGradients backward_cuda(const SelectiveScanBackward& op) {
  const auto& [out_grad, last_grad, u, delta, A, B, C, D, z, delta_bias, softplus] = op;
  const SelectiveScan in = op.scan();
  check_scan(in);
  const c10::cuda::CUDAGuard guard(u.device());
  const Call call(in);
  if (call.is_empty() || !is_supported(call.problem)) return gradients_by_aten(op);
  const auto options = u.options().dtype(call.compute);
  const Problem& problem = call.problem;

  Tensor dout, dlast;
  Gradients gradients;
  if (is_given(out_grad)) {
    dout = call.sequence(*out_grad);
    gradients.out = Call::view(dout);
  }
  if (is_given(last_grad)) {
    dlast = last_grad->to(call.compute).contiguous();
    gradients.last_state = dlast.const_data_ptr();
  }
  const Tensor du = call.result(call.dtype), ddelta = call.result(call.dtype);
  const Tensor dz = call.z.defined() ? call.result(call.dtype) : Tensor();
  gradients.u = Call::written(du);
  gradients.delta = Call::written(ddelta);
  if (dz.defined()) gradients.z = Call::written(dz);
  record("selective_scan.backward", problem);
  BackwardPlan plan = plan_backward(problem, gradients);
  const int64_t rows = plan.rows();
  const Tensor dA = unfilled({rows, problem.channels, problem.states}, options);
  const Tensor sums = unfilled({2, rows, problem.channels}, options);
  const auto matrix_parts = [&](const Tensor& matrix) {
    if (matrix.dim() == 2) return unfilled(dA.sizes(), options);
    return unfilled({problem.batch, problem.groups, plan.parts(), problem.length, problem.states},
                    options);
  };
  const Tensor dB = matrix_parts(B), dC = matrix_parts(C);
  Gradients& parts = plan.backward.args.gradients;
  parts.A = dA.mutable_data_ptr();
  parts.D = sums[0].mutable_data_ptr();
  parts.delta_bias = sums[1].mutable_data_ptr();
  parts.B = dB.mutable_data_ptr();
  parts.C = dC.mutable_data_ptr();
  TensorWorkspace workspace;
  check_launch("gpuopt::selective_scan (backward)",
               launch(plan, workspace, c10::cuda::getCurrentCUDAStream()));

  const auto none = [&] { return at::empty({0}, u.options()); };
  const auto channel_sum = [&](const TensorOption& of, int64_t which) {
    return is_given(of) ? sum_of(sums[which], {0}, of->scalar_type()) : none();
  };
  return {du.to(u.scalar_type()),
          ddelta.to(delta.scalar_type()),
          sum_of(dA, {0}, A.scalar_type()),
          matrix_gradient(B, dB),
          matrix_gradient(C, dC),
          channel_sum(D, 0),
          dz.defined() ? dz.to(z->scalar_type()) : none(),
          channel_sum(delta_bias, 1)};
}

// ---------------------------------------------------------------- The update

// Dimensions of a view (batch, heads, channels, states); a missing one has stride 0.
Operand operand(const Tensor& x, std::array<int, 4> dims) {
  Operand found;
  if (!x.defined()) return found;
  found.data = const_cast<void*>(x.const_data_ptr());
  found.dtype = to_dtype(kUpdateOp, x.scalar_type());
  for (size_t d = 0; d < dims.size(); ++d) {
    if (dims[d] >= 0) found.strides[d] = x.stride(dims[d]);
  }
  return found;
}

Tensor update_cuda(const SelectiveScanUpdate& op) {
  const auto& [state, x, dt, A, B, C, D, z, dt_bias, softplus] = op;
  const UpdateInputs in = check_update(op);
  check_memory(kUpdateOp, {{"state", state},
                           {"x", x},
                           {"dt", dt},
                           {"A", A},
                           {"B", B},
                           {"C", C},
                           {"D", in.D},
                           {"z", in.z},
                           {"dt_bias", in.dt_bias}});
  const c10::cuda::CUDAGuard guard(state.device());
  const Tensor out = unfilled(x.sizes(), x.options());
  if (out.numel() == 0) return out;
  Update update;
  update.batch = in.state.size(0);
  update.heads = in.state.size(1);
  update.channels = in.state.size(2);
  update.states = in.state.size(3);
  update.heads_per_group = update.heads / in.B.size(1);
  update.softplus = softplus;
  update.wide = x.scalar_type() == at::kDouble || state.scalar_type() == at::kDouble;
  const std::array<int, 4> rows{0, 1, 2, -1}, channels{-1, 0, 1, -1}, groups{0, 1, -1, 2};
  update.state = operand(in.state, {0, 1, 2, 3});
  update.state.data = state.mutable_data_ptr();
  update.x = operand(in.x, rows);
  update.dt = operand(in.dt, rows);
  update.A = operand(in.A, {-1, 0, 1, 2});
  update.B = operand(in.B, groups);
  update.C = operand(in.C, groups);
  update.D = operand(in.D, channels);
  update.z = operand(in.z, rows);
  update.dt_bias = operand(in.dt_bias, channels);
  update.out = operand(in.has_heads ? out : out.unsqueeze(1), rows);
  check_launch(kUpdateOp, launch(plan_update(update), c10::cuda::getCurrentCUDAStream()));
  return out;
}

TORCH_LIBRARY_IMPL(gpuopt, CUDA, m) {
  impl<SelectiveScan, scan_cuda>(m);
  impl<SelectiveScanBackward, backward_cuda>(m);
  impl<SelectiveScanUpdate, update_cuda>(m);
}

}  // namespace
}  // namespace gpuopt::selective
