// gpuopt_ladder::upsample_nearest2d and upsample_nearest2d_backward: schemas and steps.
#include "binding/ladder.h"
#include "upsample/ladder/upsample_ladder.h"

namespace gpuopt::upsample {
namespace {

const RegisterLadder forward_steps(
    kForwardLadder, "upsample_nearest2d(Tensor input, int[2] output_size, int step) -> Tensor");
const RegisterLadder backward_steps(kBackwardLadder,
                                    "upsample_nearest2d_backward(Tensor grad_output, int[2] "
                                    "output_size, int[4] input_size, int step) -> Tensor");

}  // namespace
}  // namespace gpuopt::upsample
