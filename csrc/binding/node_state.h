// What compiled autograd has to know of a node: its members, and how a graph calls it.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Scalar.h>
#include <torch/csrc/dynamo/compiled_autograd.h>

#include <array>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace gpuopt {

// Makes the members of a node part of the key of its graph. Sizes are constants of the graph.
class NodeState {
 public:
  explicit NodeState(torch::dynamo::autograd::CompiledNodeArgs& args) : args_(args) {}

  template <typename... Members>
  void operator()(const Members&... members) {
    (add(members), ...);
  }

 private:
  template <typename T>
  void add(const T& member) {
    if constexpr (std::is_enum_v<T>) {
      args_.collect(static_cast<int64_t>(member));
    } else {
      args_.collect(member);
    }
  }
  void add(const c10::SymInt& member) { args_.collect(member.guard_int(__FILE__, __LINE__)); }
  void add(const c10::Scalar& member) {
    args_.collect(static_cast<int64_t>(member.type()));
    if (member.isIntegral(/*includeBool=*/true)) return args_.collect(member.toLong());
    const auto number = member.toComplexDouble();
    args_.collect(number.real());
    args_.collect(number.imag());
  }
  template <typename T>
  void add(const std::optional<T>& member) {
    args_.collect(member.has_value());
    if (member.has_value()) add(*member);
  }
  template <typename T>
  void add(const std::vector<T>& member) {
    args_.collect(static_cast<int64_t>(member.size()));
    for (const T& element : member) add(element);
  }
  template <typename T, size_t count>
  void add(const std::array<T, count>& member) {
    for (const T& element : member) add(element);
  }

  torch::dynamo::autograd::CompiledNodeArgs& args_;
};

// Puts a call of `function` into the graph that compiled autograd records.
template <typename Function>
torch::autograd::variable_list call_in_graph(torch::dynamo::autograd::SwapSavedVariables& swap,
                                             const std::string& name,
                                             const torch::autograd::variable_list& grads,
                                             std::vector<at::IValue> tensors,
                                             const torch::autograd::edge_list& edges,
                                             Function function) {
  using torch::dynamo::autograd::IValuePacker;
  using Metadata = std::vector<std::optional<torch::autograd::InputMetadata>>;
  const std::vector<at::TypePtr> types(tensors.size(), at::TensorType::get());
  const auto& compiler = torch::dynamo::autograd::getPyCompilerInterface();
  const std::string bound =
      compiler->bind_function(swap.get_py_compiler(), name, std::move(function), types,
                              /*is_custom_function=*/true, /*is_traceable=*/true);
  return compiler->call_function(
      swap.get_py_compiler(), "apply_functional", bound, grads, std::move(tensors),
      IValuePacker<Metadata>::pack(torch::dynamo::autograd::get_input_metadata(edges)));
}

}  // namespace gpuopt
