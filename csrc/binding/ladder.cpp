// The namespace torch.ops.gpuopt_ladder: the list of ladders, and an operator for each.
#include "binding/ladder.h"

#include <ATen/Context.h>
#include <torch/csrc/autograd/autograd_not_implemented_fallback.h>
#include <torch/library.h>

#include <map>
#include <string_view>
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

// A fragment of the namespace that exists as long as the library is loaded.
torch::Library& fragment(torch::Library::Kind kind, std::optional<c10::DispatchKey> key = {}) {
  static std::vector<torch::Library> all;
  return all.emplace_back(kind, "gpuopt_ladder", key, __FILE__, __LINE__);
}

}  // namespace

RegisterLadder::RegisterLadder(const char* op, Ladder ladder, const char* schema) {
  ladders().emplace(op, ladder);
  if (schema == nullptr) return;
  fragment(torch::Library::FRAGMENT).def(schema);
  fragment(torch::Library::IMPL, c10::DispatchKey::Autograd)
      .impl(op, torch::autograd::autogradNotImplementedFallback());
  // A '!' in the schema marks an operand that is written to. Each write must count up its version,
  // which autograd compares.
  if (std::string_view(schema).find('!') != std::string_view::npos) {
    fragment(torch::Library::IMPL, c10::DispatchKey::ADInplaceOrView)
        .impl(op, torch::autograd::autogradNotImplementedInplaceOrViewFallback());
  }
}

const Ladder& ladder_of(const std::string& op) {
  const auto found = ladders().find(op);
  TORCH_CHECK_VALUE(found != ladders().end(), "gpuopt_ladder: op must be one of ", ops(), ", got '",
                    op, "'");
  return found->second;
}

void check_step(const char* op, int64_t step) {
  const Ladder& ladder = ladder_of(op);
  TORCH_CHECK_VALUE(step >= 0 && step < ladder.count, "gpuopt_ladder::", op,
                    ": step must be one of 0 to ", ladder.count - 1,
                    ", see torch_ops.ladder.steps('", op, "'); got ", step);
  // The production operator handles deterministic mode itself.
  if (!ladder.steps[step].repeatable && !is_production(op, step)) {
    at::globalContext().alertNotDeterministic(std::string("gpuopt_ladder::") + op + ", step " +
                                              ladder.steps[step].name);
  }
}

void check_ladder_operand(const char* op, const char* name, const at::Tensor& tensor,
                          std::initializer_list<at::ScalarType> dtypes) {
  bool known = false;
  for (const at::ScalarType dtype : dtypes) known = known || tensor.scalar_type() == dtype;
  TORCH_CHECK_NOT_IMPLEMENTED(known, "gpuopt_ladder::", op, ": ", name, " must be of dtype ",
                              at::ArrayRef<at::ScalarType>(dtypes), ", got ", tensor.scalar_type());
  TORCH_CHECK(tensor.is_contiguous(), "gpuopt_ladder::", op, ": ", name,
              " must be contiguous, got strides ", tensor.strides(), " of shape ", tensor.sizes());
}

void check_ladder_vecs(const char* op, const char* step, const char* name,
                       const at::Tensor& tensor) {
  const auto behind = reinterpret_cast<uintptr_t>(tensor.const_data_ptr()) % 16;
  TORCH_CHECK(behind == 0, "gpuopt_ladder::", op, step != nullptr ? ", step " : "",
              step != nullptr ? step : "", ": ", name,
              " must begin at a multiple of 16 bytes, got a view that begins ", behind,
              " bytes behind one");
}

}  // namespace gpuopt
