// kvc-bench: speed and size against what the machine allows (docs/performance.md).
#include "conformance/bench/harness.h"

int main(int argc, char** argv) { return kvc::bench::run(argc, argv); }
