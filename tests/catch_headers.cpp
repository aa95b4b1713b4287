// Nothing but the headers that test programs share (cmake/precompile.cmake).
#include <catch2/catch.hpp>
