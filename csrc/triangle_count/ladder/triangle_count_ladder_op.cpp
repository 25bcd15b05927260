// gpuopt_ladder::triangle_count: schema and steps.
#include "binding/ladder.h"
#include "triangle_count/ladder/triangle_count_ladder.h"

namespace gpuopt::triangle_count {
namespace {

const RegisterLadder steps(
    kLadder, "triangle_count(Tensor source, Tensor target, int vertices, int step) -> Tensor");

}  // namespace
}  // namespace gpuopt::triangle_count
