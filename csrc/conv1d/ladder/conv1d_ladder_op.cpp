// gpuopt_ladder::conv1d: schema and steps.
#include "binding/ladder.h"
#include "conv1d/ladder/conv1d_ladder.h"

namespace gpuopt::conv1d {
namespace {

const RegisterLadder steps(kLadder, "conv1d(Tensor input, Tensor weight, int step) -> Tensor");

}  // namespace
}  // namespace gpuopt::conv1d
