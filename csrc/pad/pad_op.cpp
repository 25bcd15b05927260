// Padding on all devices but CUDA: schemas, and the kernels for CPU, Meta, autograd and vmap.
// Autocast has no policy for it, as in ATen.
#include <ATen/ATen.h>

#include <vector>

#include "binding/aten.h"
#include "binding/grad_node.h"
#include "binding/vmap.h"
#include "pad/pad_aten.h"

namespace gpuopt::pad {
namespace {

using namespace autograd_names;
using at::Tensor;
using c10::SymInt;

const std::optional<at::Scalar> kNoValue;

// ---------------------------------------------------------------- CPU and Meta

Tensor pad_cpu(const Pad& op) {
  check(op);
  return call_aten(name_of<Pad>(), op.self.scalar_type(), "", [&] { return by_aten(op); });
}

Tensor pad_meta(const Pad& op) {
  const at::SymDimVector sizes = check(op);
  const Mode mode = *mode_named(op.mode);
  if (mode == Mode::kConstant) return at::constant_pad_nd_symint(op.self, op.pad, 0);
  return at::empty_symint(sizes, op.self.options().memory_format(format_of(mode, op.self)));
}

Tensor pad_backward_meta(const PadBackward& op) {
  checked_mode(name_of<PadBackward>(), op.mode);
  return at::empty_symint(op.size,
                          op.grad.options().memory_format(op.grad.suggest_memory_format()));
}

// ---------------------------------------------------------------- derivatives

// Padding by zeros and by borders is linear. The adjoint of borders is _pad_backward.
struct PadNode : GradNode {
  explicit PadNode(const Pad& op)
      : GradNode(op.self), size_(op.self.sym_sizes().vec()), pad_(op.pad.vec()), mode_(op.mode) {}
  std::string name() const override { return "GpuoptPadBackward"; }
  void describe_state(NodeState& state) const override { state(size_, pad_, mode_); }

  variable_list gradients(const Tensor& grad) override {
    if (mode_ != "constant") return {call(PadBackward{grad, size_, pad_, mode_})};
    std::vector<SymInt> cropped;
    for (const SymInt& number : pad_) cropped.push_back(-number);
    return {call(Pad{grad, cropped, mode_, kNoValue})};
  }
  static Tensor tangent(const Pad& op, const Tensor&) {
    return call(Pad{tangent_of(op.self), op.pad, op.mode, kNoValue});
  }

 private:
  std::vector<SymInt> size_, pad_;
  std::string mode_;
};

struct PadBackwardNode : GradNode {
  explicit PadBackwardNode(const PadBackward& op)
      : GradNode(op.grad), pad_(op.pad.vec()), mode_(op.mode) {}
  std::string name() const override { return "GpuoptPadBackwardBackward"; }
  void describe_state(NodeState& state) const override { state(pad_, mode_); }

  variable_list gradients(const Tensor& grad) override {
    return {call(Pad{grad, pad_, mode_, kNoValue})};
  }

 private:
  std::vector<SymInt> pad_;
  std::string mode_;
};

// ---------------------------------------------------------------- vmap

// Examples become part of the batch, or are the batch.
Tensor pad_vmap(const Pad& op, const VmapLevel& level, const SymInt& examples) {
  check(op);
  const Tensor self = level.unwrap(op.self).in_front(examples);
  const bool has_batch =
      op.mode != "constant" && op.self.dim() > static_cast<int64_t>(op.pad.size() / 2) + 1;
  if (!has_batch) return level.wrap(call(Pad{self, op.pad, op.mode, op.value}), 0);
  const std::array<SymInt, 2> batch{examples, self.sym_size(1)};
  const Tensor result = call(Pad{self.flatten(0, 1), op.pad, op.mode, op.value});
  return level.wrap(result.unflatten_symint(0, batch), 0);
}

Tensor pad_backward_vmap(const PadBackward& op, const VmapLevel& level, const SymInt& examples) {
  const Tensor grad = level.unwrap(op.grad).in_front(examples);
  std::vector<SymInt> size = op.size.vec();
  if (size.size() < op.pad.size() / 2 + 2) {
    size.insert(size.begin(), examples);
    return level.wrap(call(PadBackward{grad, size, op.pad, op.mode}), 0);
  }
  const std::array<SymInt, 2> batch{examples, size[0]};
  size[0] = size[0] * examples;
  const Tensor result = call(PadBackward{grad.flatten(0, 1), size, op.pad, op.mode});
  return level.wrap(result.unflatten_symint(0, batch), 0);
}

TORCH_LIBRARY_FRAGMENT(gpuopt, m) {
  register_op<Pad, Cpu<pad_cpu>, Meta<pad_meta>, Grad<PadNode>, Vmap<pad_vmap>>(m);
  register_op<PadBackward, Cpu<sum_borders>, Meta<pad_backward_meta>, Grad<PadBackwardNode>,
              Vmap<pad_backward_vmap>>(m);
  register_private_op<Roll, Cpu<roll_by_aten>, Meta<roll_by_aten>>(m);
  register_private_op<Cat, Cpu<cat_by_aten>, Meta<cat_by_aten>>(m);
}

}  // namespace
}  // namespace gpuopt::pad
