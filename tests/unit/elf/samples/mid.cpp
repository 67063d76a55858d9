extern "C" int elf_sample_deep();
extern "C" int elf_sample_mid() { return elf_sample_deep() + 1; }
