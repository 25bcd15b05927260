// ATen's iterator over an output and its inputs. ATen decides on broadcasting, type promotion, the
// output's memory format and the order of dimensions.
//
// at::TensorIterator allocates an output through the dispatcher, and so fills it under
// torch.use_deterministic_algorithms. It also counts references to all operands. Iterator allocates
// as ATen's structured operators do, and borrows: a call costs the host less.
#pragma once

#include <ATen/TensorIterator.h>

#include "binding/unfilled.h"

namespace gpuopt::elementwise {

// Up to torch 2.14, the function that allocates an output has a parameter for names of dimensions.
template <typename SetOutput>
class AllocatingIterator;

template <typename... Names>
class AllocatingIterator<void (at::TensorIteratorBase::*)(int64_t, at::IntArrayRef, at::IntArrayRef,
                                                          at::TensorOptions, Names...)>
    : public at::TensorIteratorBase {
 public:
  const at::Tensor& maybe_get_output(int64_t) override { return output(); }

  void set_output_raw_strided(int64_t index, at::IntArrayRef sizes, at::IntArrayRef strides,
                              at::TensorOptions options, Names...) override {
    at::OperandInfo& operand = operands_[index];
    if (!operand.tensor_base().defined()) {
      operand.tensor(c10::MaybeOwned<at::TensorBase>::owned(
          strides.empty() ? unfilled(sizes, options) : unfilled_strided(sizes, strides, options)));
      operand.current_dtype = operand.target_dtype;
    } else if (operand.will_resize) {
      const at::Tensor& out = operand.tensor();
      at::native::resize_output(out, sizes);
      if (!strides.empty()) {
        out.as_strided_(sizes, strides);
      } else if (options.memory_format_opt().has_value()) {
        out.unsafeGetTensorImpl()->empty_tensor_restride(*options.memory_format_opt());
      }
    }
  }
};

using Operands = c10::SmallVector<const at::Tensor*, 3>;

inline Operands operands_of(at::TensorList tensors) {
  Operands operands;
  for (const at::Tensor& tensor : tensors) operands.push_back(&tensor);
  return operands;
}

// An `out` that is not defined is allocated. The tensors must outlive the iterator.
class Iterator final
    : public AllocatingIterator<decltype(&at::TensorIteratorBase::set_output_raw_strided)> {
 public:
  // Inputs are broadcast and promoted.
  Iterator(const at::Tensor& out, const Operands& inputs) {
    at::TensorIteratorConfig config;
    config.allow_cpu_scalars(true)
        .promote_inputs_to_common_dtype(true)
        .cast_common_dtype_to_outputs(true)
        .enforce_safe_casting_to_output(true)
        .add_borrowed_output(out);
    for (const at::Tensor* input : inputs) config.add_borrowed_const_input(*input);
    build(config);
  }

  // One input, and an output of another dtype.
  Iterator(const at::Tensor& out, const at::Tensor& input, at::ScalarType dtype) {
    at::TensorIteratorConfig config;
    config.check_all_same_dtype(false).add_borrowed_output(out).add_borrowed_const_input(input);
    if (!out.defined()) config.declare_static_dtype(dtype);
    build(config);
  }
};

}  // namespace gpuopt::elementwise
