// gpuopt_ladder::dot: schema and steps.
#include "binding/ladder.h"
#include "dot/ladder/dot_ladder.h"

namespace gpuopt::dot {
namespace {

const RegisterLadder steps(kLadder, "dot(Tensor self, Tensor tensor, int step) -> Tensor");

}  // namespace
}  // namespace gpuopt::dot
