// `ingot`. Test builds have a program of their own (tests/emulation/ingot_emulated.cpp) that adds the emulator.
#include "compiler/driver/cli.h"

int main(int argc, char** argv) { return ingot::cli::run_command_line(argc, argv); }
