// copy_file_range: offsets of its own, positions, the end of the file.
#include "transcript.h"

int main(void) {
    char text[32] = "";
    int in = MUST(open("in", O_RDWR | O_CREAT, 0600)), out = MUST(open("out", O_RDWR | O_CREAT, 0600));
    MUST(write(in, "hello world", 11));
    MUST(lseek(in, 6, SEEK_SET));
    CALL(copy_file_range(in, NULL, out, NULL, 100, 0));
    CALL(copy_file_range(in, NULL, out, NULL, 100, 0));
    loff_t from = 0, to = 20;
    CALL(copy_file_range(in, &from, out, &to, 5, 0));
    SAY("from %ld, to %ld, positions %ld %ld", (long)from, (long)to, (long)lseek(in, 0, SEEK_CUR),
        (long)lseek(out, 0, SEEK_CUR));
    CALL(pread(out, text, sizeof text, 0));
    CHECK(memcmp(text, "world", 5) == 0 && memcmp(text + 20, "hello", 5) == 0);
    CALL(copy_file_range(in, NULL, out, NULL, 5, 1));
    CALL(copy_file_range(99, NULL, out, NULL, 5, 0));
    CALL(copy_file_range(in, NULL, 99, NULL, 5, 0));
    CALL(copy_file_range(in, (loff_t *)1, out, NULL, 5, 0));
}
