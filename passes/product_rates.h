// Rough rates by which passes weigh a fusion into a product on a GPU, where tiles are not chosen yet.
#pragma once

namespace ingot {

constexpr double kTensorRate = 10;      // products on tensor cores, beside plain f32 ones
constexpr double kWithoutBoxes = 0.62;  // of that where operands do not arrive by TMA
constexpr double kLaunch = 2000;        // ns between two kernels

}  // namespace ingot
