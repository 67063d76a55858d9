extern "C" int elf_sample_deep() { return 42; }
