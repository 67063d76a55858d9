// Locks of files.
#include "transcript.h"

#include <pthread.h>
#include <sys/file.h>

static int other;
static void *unlocks(void *arg) {
    (void)arg;
    sleep_ms(60);
    flock(other, LOCK_UN);
    return NULL;
}
static void *unlocks_range(void *arg) {
    (void)arg;
    sleep_ms(60);
    struct flock l = {.l_type = F_UNLCK, .l_whence = SEEK_SET};
    fcntl(other, F_OFD_SETLK, &l);
    return NULL;
}
static void on_alarm(int signal) { (void)signal; }

int main(void) {
    int fd = MUST(open("locked", O_RDWR | O_CREAT, 0600));
    other = MUST(open("locked", O_RDWR));
    MUST(write(fd, "0123456789", 10));
    section("flock");
    CALL(flock(fd, LOCK_EX));
    CALL(flock(other, LOCK_EX | LOCK_NB));
    CALL(flock(other, LOCK_SH | LOCK_NB));
    CALL(flock(fd, LOCK_SH));
    CALL(flock(other, LOCK_SH | LOCK_NB));
    CALL(flock(fd, LOCK_UN));
    CALL(flock(other, LOCK_EX));
    pthread_t thread;
    int64_t start = now_ms(); // before the other thread's sleep begins
    MUST(pthread_create(&thread, NULL, unlocks, NULL));
    CALL(flock(fd, LOCK_EX));
    CHECK(now_ms() - start >= 50);
    pthread_join(thread, NULL);
    struct sigaction action = {.sa_handler = on_alarm};
    MUST(sigaction(SIGALRM, &action, NULL));
    alarm(1);
    CALL(flock(other, LOCK_EX));
    CALL(flock(fd, LOCK_UN));
    CALL(flock(99, LOCK_EX));
    CALL(flock(fd, 7));
    section("ranges");
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    CALL(fcntl(fd, F_OFD_SETLK, &whole));
    CALL(fcntl(other, F_OFD_SETLK, &whole));
    struct flock asked = whole;
    CALL(fcntl(other, F_OFD_GETLK, &asked));
    SAY("type %d, whence %d, start %ld, length %ld, pid %d", asked.l_type, asked.l_whence, asked.l_start, asked.l_len, asked.l_pid);
    struct flock none = {.l_type = F_UNLCK, .l_whence = SEEK_SET};
    CALL(fcntl(fd, F_OFD_SETLK, &none));
    MUST(lseek(fd, 4, SEEK_SET));
    struct flock here = {.l_type = F_WRLCK, .l_whence = SEEK_CUR, .l_start = -1, .l_len = 2};
    CALL(fcntl(fd, F_OFD_SETLK, &here));
    asked = whole;
    CALL(fcntl(other, F_OFD_GETLK, &asked));
    SAY("type %d, whence %d, start %ld, length %ld", asked.l_type, asked.l_whence, asked.l_start, asked.l_len);
    struct flock part = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 5, .l_len = 5};
    CALL(fcntl(other, F_OFD_SETLK, &part));
    CALL(fcntl(other, F_OFD_SETLK, &none));
    CALL(fcntl(fd, F_OFD_SETLK, &none));
    CALL(fcntl(other, F_OFD_SETLKW, &whole));
    start = now_ms();
    MUST(pthread_create(&thread, NULL, unlocks_range, NULL));
    CALL(fcntl(fd, F_OFD_SETLKW, &whole));
    CHECK(now_ms() - start >= 50);
    pthread_join(thread, NULL);
    CALL(fcntl(fd, F_SETLK, (struct flock *)8));
    int reader = MUST(open("locked", O_RDONLY));
    CALL(fcntl(reader, F_SETLK, &whole));
    int ends[2];
    MUST(pipe(ends));
    section("append switched on");
    MUST(lseek(fd, 0, SEEK_SET));
    CALL(fcntl(fd, F_SETFL, O_APPEND));
    CALL(write(fd, "end", 3));
    CALL(lseek(fd, 0, SEEK_CUR));
    CALL(fcntl(fd, F_SETFL, 0));
    CALL(pwrite(fd, "x", 1, 0));
    char text[20] = {0};
    CALL(pread(fd, text, sizeof text, 0));
    SAY("%s", text);
    return 0;
}
