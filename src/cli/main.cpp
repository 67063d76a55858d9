#include "src/cli/run_main.hpp"

int main(int argc, char** argv) { return kvmserver::cli::run_main(argc, argv); }
