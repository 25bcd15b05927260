// gpuopt_ladder::mul: schema and steps.
#include "binding/ladder.h"
#include "elementwise/ladder/elementwise_ladder.h"

namespace gpuopt::elementwise {
namespace {

const RegisterLadder steps(kLadder, "mul(Tensor self, Tensor other, int step) -> Tensor");

}  // namespace
}  // namespace gpuopt::elementwise
