int from_library(void);
int main(void) { return from_library(); }
