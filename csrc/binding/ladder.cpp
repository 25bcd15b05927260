// The namespace torch.ops.gpuopt_ladder: the list of ladders, and an operator for each.
#include "binding/ladder.h"

#include <ATen/Context.h>
#include <torch/csrc/autograd/autograd_not_implemented_fallback.h>
#include <torch/library.h>

#include <algorithm>
#include <map>
#include <vector>

namespace gpuopt {
namespace {

std::map<std::string, Ladder>& ladders() {
  static std::map<std::string, Ladder> all;  // filled while the library is loaded
  return all;
}

std::vector<std::string> ops() {
  std::vector<std::string> names;
  for (const auto& [op, ladder] : ladders()) names.push_back(op);
  return names;
}

// Calls `get` for each step.
template <typename T, typename Get>
c10::List<T> of_steps(const std::string& op, Get get) {
  const Ladder& ladder = ladder_of(op);
  c10::List<T> values;
  for (int64_t i = 0; i < ladder.count; ++i) values.push_back(get(ladder.steps[i]));
  return values;
}

c10::List<std::string> names(const std::string& op) {
  return of_steps<std::string>(op, [](const LadderStep& step) { return step.name; });
}

c10::List<std::string> ideas(const std::string& op) {
  return of_steps<std::string>(op, [](const LadderStep& step) { return step.idea; });
}

c10::List<bool> repeatable(const std::string& op) {
  return of_steps<bool>(op, [](const LadderStep& step) { return step.repeatable; });
}

TORCH_LIBRARY(gpuopt_ladder, m) {
  m.def("ops() -> str[]", ops);
  m.def("names(str op) -> str[]", names);
  m.def("ideas(str op) -> str[]", ideas);
  m.def("repeatable(str op) -> bool[]", repeatable);
}

std::string op_of(const std::string& schema) { return schema.substr(0, schema.find('(')); }

// A fragment of the namespace that exists as long as the library is loaded.
torch::Library& fragment(torch::Library::Kind kind, std::optional<c10::DispatchKey> key = {}) {
  static std::vector<torch::Library> all;
  return all.emplace_back(kind, "gpuopt_ladder", key, __FILE__, __LINE__);
}

}  // namespace

RegisterLadder::RegisterLadder(const char* schema) {
  const std::string text(schema), op = op_of(text);
  fragment(torch::Library::FRAGMENT).def(schema);
  fragment(torch::Library::IMPL, c10::DispatchKey::Autograd)
      .impl(op.c_str(), torch::autograd::autogradNotImplementedFallback());
  // A '!' in the schema marks an operand that is written to. Each write must count up its version,
  // which autograd compares.
  if (text.find('!') != std::string::npos) {
    fragment(torch::Library::IMPL, c10::DispatchKey::ADInplaceOrView)
        .impl(op.c_str(), torch::autograd::autogradNotImplementedInplaceOrViewFallback());
  }
}

RegisterLadder::RegisterLadder(Ladder ladder, const char* schema) : RegisterLadder(schema) {
  ladders().emplace(op_of(schema), ladder);
}

const Ladder& ladder_of(const std::string& op) {
  const auto found = ladders().find(op);
  TORCH_CHECK_VALUE(found != ladders().end(), "gpuopt_ladder: op must be one of ", ops(), ", got '",
                    op, "'");
  return found->second;
}

void check_aligned(const std::string& op, NamedTensor argument, int64_t bytes) {
  const auto address = reinterpret_cast<uintptr_t>(argument.tensor.const_data_ptr());
  const int64_t behind = static_cast<int64_t>(address % bytes);
  TORCH_CHECK(behind == 0, op, ": ", argument.name, " must begin at a multiple of ", bytes,
              " bytes, got a view that begins ", behind, " bytes behind one");
}

LadderCall::LadderCall(const char* op, int64_t step)
    : ladder_(ladder_of(op)), step_(step), op_(std::string("gpuopt_ladder::") + op) {
  TORCH_CHECK_VALUE(step >= 0 && step < ladder_.count, op_, ": step must be one of 0 to ",
                    ladder_.count - 1, ", see torch_ops.ladder.steps('", op, "'); got ", step);
  // The production operator handles deterministic mode itself.
  if (!ladder_.steps[step].repeatable && !is_production()) {
    at::globalContext().alertNotDeterministic(op_and_step());
  }
}

bool LadderCall::is_from(std::string_view name) const {
  const LadderStep* end = ladder_.steps + step_ + 1;
  return std::any_of(ladder_.steps, end, [&](const LadderStep& step) { return name == step.name; });
}

void LadderCall::check_dtype(NamedTensor argument,
                             std::initializer_list<at::ScalarType> dtypes) const {
  const auto& [name, tensor] = argument;
  const at::ArrayRef<at::ScalarType> known(dtypes);
  const bool is_known = std::find(known.begin(), known.end(), tensor.scalar_type()) != known.end();
  TORCH_CHECK_NOT_IMPLEMENTED(is_known, op_, ": ", name, " must be of dtype ", known, ", got ",
                              tensor.scalar_type());
}

void LadderCall::check_operand(NamedTensor argument,
                               std::initializer_list<at::ScalarType> dtypes) const {
  check_dtype(argument, dtypes);
  const auto& [name, tensor] = argument;
  TORCH_CHECK(tensor.is_contiguous(), op_, ": ", name, " must be contiguous, got strides ",
              tensor.strides(), " of shape ", tensor.sizes());
}

}  // namespace gpuopt
