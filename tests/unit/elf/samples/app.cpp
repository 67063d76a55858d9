extern "C" int elf_sample_mid();
int main() { return elf_sample_mid() == 43 ? 0 : 1; }
