// What fails when the memory of the guest kernel is used up leaves nothing behind. On Linux most of it succeeds, so that
// the claims hold either way.
#include "own.h"

#include <pthread.h>
#include <sys/inotify.h>

enum { kPipes = 300, kLinks = 2000, kLong = 240, kSpared = 4 };
static int watch;

static const char *name_of(char first, int number, int length) {
    static char name[256];
    memset(name, first, (size_t)length);
    name[length] = 0;
    char digits[12];
    memcpy(name, digits, (size_t)snprintf(digits, sizeof digits, "%d", number));
    return name;
}

static void fill(void) {
    int p[2];
    for (int i = 0; i < kPipes && pipe(p) == 0; i++)
        for (int bytes = 1 << 20; bytes >= 1 << 17 && fcntl(p[0], F_SETPIPE_SZ, bytes) < 0;) bytes /= 2;
    static const int lengths[] = {kLong, 100, 20, 10};
    for (int of = 0; of < 4; of++)
        for (int i = 0; i < kLinks && link("file", name_of((char)('w' + of), i, lengths[of])) == 0;) i++;
}

static void *ends(void *unused) { return unused; }

static void threads(void) {
    section("threads");
    for (int i = 0; i < kSpared; i++) MUST(unlink(name_of('w', i, kLong)));
    for (int i = 0; i < 40; i++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, ends, NULL) == 0) pthread_join(thread, NULL);
    }
    int names = 0; // each takes as much as one of those that were removed
    while (names < kSpared && link("file", name_of('w', names, kLong)) == 0) names++;
    CHECK(names == kSpared);
}

static void renaming(const char *from, const char *to, int flags) {
    char room[4096];
    while (read(watch, room, sizeof room) > 0) {
    }
    const int done = renameat2(AT_FDCWD, from, AT_FDCWD, to, (unsigned)flags) == 0;
    const ssize_t bytes = read(watch, room, sizeof room);
    CHECK(access(to, F_OK) == (done ? 0 : -1));
    CHECK(access(from, F_OK) == (done && !flags ? -1 : 0));
    CHECK(done || bytes <= 0); // no event of a failure
}

static void names(void) {
    section("names");
    fill(); // what that has left
    CALL(rename("short", "other")); // as long as before
    renaming("other", name_of('n', 0, kLong), 0);
    if (access("other", F_OK) != 0) MUST(rename(name_of('n', 0, kLong), "other"));
    CALL(renameat2(AT_FDCWD, "other", AT_FDCWD, name_of('w', 0, kLong), RENAME_EXCHANGE));
    struct stat a, b;
    CHECK(stat("other", &a) == 0 && a.st_size == 0);
    CHECK(stat(name_of('w', 0, kLong), &b) == 0 && b.st_size == 5);
}

int main(void) {
    own_enter("/tmp");
    MUST(close(open("file", O_CREAT | O_WRONLY, 0600)));
    const int fd = MUST(open("short", O_CREAT | O_WRONLY, 0600));
    MUST(write(fd, "short", 5));
    close(fd);
    watch = MUST(inotify_init1(IN_NONBLOCK));
    MUST(inotify_add_watch(watch, ".", IN_MOVE));
    fill();
    threads();
    names();
    return 0;
}
