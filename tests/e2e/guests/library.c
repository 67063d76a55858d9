int from_library(void) { return 0; }
