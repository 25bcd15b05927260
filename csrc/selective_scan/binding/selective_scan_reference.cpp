// Selective scans in ATen's operators: the CPU kernels, and the derivatives and batching rules that
// have no kernel of their own.
#include "selective_scan/binding/selective_scan_reference.h"

#include <ATen/ATen.h>

#include <vector>

namespace gpuopt::selective {
namespace {

// The values of B or C at a position: (batch, dim, n), or (dim, n).
Tensor at_position(const Tensor& matrix, int64_t t, const c10::SymInt& channels) {
  if (matrix.dim() == 2) return matrix;
  const Tensor found = matrix.select(-1, t);
  if (matrix.dim() == 3) return found.unsqueeze(1);
  const c10::SymInt groups = found.sym_size(1);
  auto sizes = found.sym_sizes().vec();
  sizes.insert(sizes.begin() + 2, channels / groups);
  return found.unsqueeze(2).expand_symint(sizes).flatten(1, 2);
}

// The gradient of B or C out of the gradients of its positions: (batch, dim, n) each.
Tensor matrix_gradient(const Tensor& matrix, const std::vector<Tensor>& parts) {
  if (parts.empty()) return at::zeros_like(matrix, at::MemoryFormat::Contiguous);
  const Tensor all = at::stack(parts, -1);
  Tensor sum;
  if (matrix.dim() == 2) {
    sum = all.sum(at::IntArrayRef{0, 3});
  } else if (matrix.dim() == 3) {
    sum = all.sum(1);
  } else {
    const c10::SymInt groups = matrix.sym_size(1);
    sum = all.unflatten_symint(1, {groups, all.sym_size(1) / groups}).sum(2);
  }
  return sum.to(matrix.scalar_type()).contiguous();
}

Tensor softplus_of(const Tensor& x) { return at::softplus(x, 1, 20); }

// What a call is computed from, in the compute type.
struct Values {
  Tensor u, raw, dt, A, B, C, D, z;
  int64_t length;
  c10::SymInt channels;

  explicit Values(const SelectiveScan& in) {
    const auto type = in.compute_type();
    u = in.u.to(type);
    raw = in.delta.to(type);
    if (is_given(in.delta_bias)) raw = raw + in.delta_bias->to(type).unsqueeze(-1);
    dt = in.softplus ? softplus_of(raw) : raw;
    A = in.A.to(type);
    B = in.B.to(type);
    C = in.C.to(type);
    if (is_given(in.D)) D = in.D->to(type).unsqueeze(-1);
    if (is_given(in.z)) z = in.z->to(type);
    length = u.sym_size(2).guard_int(__FILE__, __LINE__);
    channels = u.sym_size(1);
  }

  Tensor decay(int64_t t) const { return (dt.select(2, t).unsqueeze(-1) * A).exp(); }
  Tensor term(int64_t t) const {
    return (dt.select(2, t) * u.select(2, t)).unsqueeze(-1) * at_position(B, t, channels);
  }
  Tensor first() const { return at::zeros_like(u.sum(2).unsqueeze(-1) * A); }
  Tensor with_skip(const Tensor& y) const { return D.defined() ? y + D * u : y; }

  // y without D, and the states after each position if asked for.
  Tensor go(Tensor& h, std::vector<Tensor>* states) const {
    std::vector<Tensor> y;
    for (int64_t t = 0; t < length; ++t) {
      h = decay(t) * h + term(t);
      y.push_back((at_position(C, t, channels) * h).sum(-1));
      if (states != nullptr) states->push_back(h);
    }
    return y.empty() ? at::zeros_like(u) : at::stack(y, -1);
  }
};

// A copy with the strides of new_like(u).
Tensor laid_out(const Tensor& x, const Tensor& u, at::ScalarType dtype) {
  const Tensor typed = x.to(dtype);
  return is_channels_last(u) ? typed.transpose(1, 2).contiguous().transpose(1, 2)
                             : typed.contiguous();
}

}  // namespace

Outputs scan_by_aten(const SelectiveScan& in) {
  const Values x(in);
  Tensor h = x.first();
  Tensor out = x.with_skip(x.go(h, nullptr));
  if (x.z.defined()) out = out * at::silu(x.z);
  return {laid_out(out, in.u, in.u.scalar_type()), h.contiguous()};
}

InputGradients gradients_by_aten(const SelectiveScanBackward& call) {
  const SelectiveScan in = call.scan();
  const TensorOption &out_grad = call.out_grad, &last_grad = call.last_grad;
  const Values x(in);
  const auto type = in.compute_type();
  std::vector<Tensor> states;
  Tensor h = x.first();
  const Tensor first = h, y = x.with_skip(x.go(h, &states));
  const Tensor dout = is_given(out_grad) ? out_grad->to(type) : at::zeros_like(x.u);
  Tensor dy = dout, dz;
  if (x.z.defined()) {
    const Tensor gate = at::sigmoid(x.z);
    dy = dout * x.z * gate;
    dz = dout * y * gate * (1 + x.z * (1 - gate));
  }
  Tensor g = is_given(last_grad) ? last_grad->to(type) : at::zeros_like(first);
  Tensor dA = at::zeros_like(first);
  std::vector<Tensor> du(x.length), ddt(x.length), dB(x.length), dC(x.length);
  for (int64_t t = x.length - 1; t >= 0; --t) {
    const Tensor dy_t = dy.select(2, t).unsqueeze(-1), dt = x.dt.select(2, t);
    const Tensor u = x.u.select(2, t), a = x.decay(t);
    g = g + at_position(x.C, t, x.channels) * dy_t;
    dC[t] = dy_t * states[t];
    dB[t] = g * (dt * u).unsqueeze(-1);
    const Tensor s = (g * at_position(x.B, t, x.channels)).sum(-1);
    g = g * a;
    const Tensor w = g * (t > 0 ? states[t - 1] : first);
    dA = dA + w * dt.unsqueeze(-1);
    ddt[t] = (w * x.A).sum(-1) + u * s;
    du[t] = dt * s;
  }
  const auto joined = [&](const std::vector<Tensor>& parts) {
    return parts.empty() ? at::zeros_like(x.u) : at::stack(parts, -1);
  };
  Tensor u_grad = joined(du), delta_grad = joined(ddt);
  if (x.D.defined()) u_grad = u_grad + x.D * dy;
  if (in.softplus) {
    delta_grad = delta_grad * at::where(x.raw > 20, at::ones_like(x.raw), at::sigmoid(x.raw));
  }
  const auto none = [&] { return at::empty({0}, in.u.options()); };
  const auto summed = [&](const Tensor& whole, const TensorOption& of) {
    return is_given(of) ? whole.sum(at::IntArrayRef{0, 2}).to(of->scalar_type()) : none();
  };
  return {laid_out(u_grad, in.u, in.u.scalar_type()),
          laid_out(delta_grad, in.u, in.delta.scalar_type()),
          dA.sum(0).to(in.A.scalar_type()),
          matrix_gradient(in.B, dB),
          matrix_gradient(in.C, dC),
          summed(dy * x.u, in.D),
          dz.defined() ? laid_out(dz, in.u, in.z->scalar_type()) : none(),
          summed(delta_grad, in.delta_bias)};
}

Tensor update_by_aten(const UpdateInputs& in) {
  const auto type = in.x.scalar_type() == at::kDouble || in.state.scalar_type() == at::kDouble
                        ? at::kDouble
                        : at::kFloat;
  const auto grouped = [&](const Tensor& matrix) {  // (batch, heads, 1, n)
    const c10::SymInt each = in.x.sym_size(1) / matrix.sym_size(1);
    auto sizes = matrix.sym_sizes().vec();
    sizes.insert(sizes.begin() + 2, each);
    return matrix.to(type).unsqueeze(2).expand_symint(sizes).flatten(1, 2).unsqueeze(2);
  };
  const Tensor x = in.x.to(type);
  Tensor dt = in.dt.to(type);
  if (in.dt_bias.defined()) dt = dt + in.dt_bias.to(type);
  if (in.softplus) dt = softplus_of(dt);
  const Tensor decay = (dt.unsqueeze(-1) * in.A.to(type)).exp();
  const Tensor h = in.state.to(type) * decay + (dt * x).unsqueeze(-1) * grouped(in.B);
  Tensor out = (h * grouped(in.C)).sum(-1);
  if (in.D.defined()) out = out + in.D.to(type) * x;
  if (in.z.defined()) out = out * at::silu(in.z.to(type));
  Tensor state = in.state;
  state.copy_(h);
  out = out.to(in.x.scalar_type());
  return (in.has_heads ? out : out.squeeze(1)).contiguous();
}

}  // namespace gpuopt::selective
