// gpuopt_ladder::conv1d_paths and conv1d_path. With them one can measure every path that supports a
// problem beside the path that conv1d chooses.
#include <torch/library.h>

#include <sstream>

#include "binding/ladder.h"
#include "conv1d/ladder/path_call.h"
#include "conv1d/policy.h"

namespace gpuopt::conv1d {
namespace {

// A plan needs no data: tensors may be on any device, "meta" included.
std::string conv1d_paths(const at::Tensor& input, const at::Tensor& weight,
                         const TensorOption& bias, const TensorOption& grad_output, int64_t stride,
                         int64_t padding, int64_t dilation, int64_t groups, std::string_view what,
                         int64_t sms) {
  const PathCall call("gpuopt_ladder::conv1d_paths", input, weight, bias, grad_output, stride,
                      padding, dilation, groups, what);
  TORCH_CHECK_VALUE(
      sms >= 1 && sms <= 1 << 20,
      "gpuopt_ladder::conv1d_paths: multiprocessors must be that of a GPU: expected 1 "
      "to 1048576, got ",
      sms);
  const Device device{static_cast<int>(sms), 227 << 10};  // with the shared memory of an H100
  std::ostringstream lines;
  lines << plan(call.problem, call.pass, device).name();
  for_each_path(call.problem, call.pass, device, [&](const auto& path, const Problem& laid) {
    std::visit(
        [&](const auto& plan_of_path) {
          lines << '\n' << plan_of_path.kName;
          if constexpr (requires { plan_of_path.kCosts; }) {
            const Terms terms = plan_of_path.terms(laid, device);
            lines << ' ' << cost_of(plan_of_path.kCosts, laid, terms) << " 1 " << traffic_of(laid);
            for (double term : terms) lines << ' ' << term;
          }
        },
        path);
  });
  if (const auto rows = plan_through_rows(call.problem, call.pass, device)) {
    lines << '\n' << kRowsName << ' ' << rows->us;
  }
  return lines.str();
}

// `what` is "output", "grad_input" or "grad_weight".
//
// conv1d_paths returns lines. The first is the name of the path that conv1d chooses. Then comes a
// line for each path that supports the problem: its name, its cost in microseconds, and the terms
// of that cost. "rows" transposes channels-last signals to rows, and has no terms of its own.
// conv1d_path computes the result with the path of the given name.
TORCH_LIBRARY_FRAGMENT(gpuopt_ladder, m) {
  m.def(
      "conv1d_paths(Tensor input, Tensor weight, Tensor? bias, Tensor? grad_output, int stride, "
      "int padding, int dilation, int groups, str what, int multiprocessors) -> str",
      torch::dispatch(c10::DispatchKey::CompositeExplicitAutograd, conv1d_paths));
}

const RegisterLadder path(
    "conv1d_path(Tensor input, Tensor weight, Tensor? bias, Tensor? grad_output, int stride, "
    "int padding, int dilation, int groups, str what, str path) -> Tensor");

}  // namespace
}  // namespace gpuopt::conv1d
