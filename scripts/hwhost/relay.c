// Runs a command in the emulated Intel host and carries its streams and status out over one serial line, as frames: a
// letter, the length in decimal, a newline, the bytes. u: the command begins; o: stdout; e: stderr; x: its status, the
// last frame.
// Usage: relay DEVICE COMMAND ARGS...
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

enum { kPatienceMs = 2000 }; // for a daemon that the command left behind with its pipes

static void die(const char* what) {
    perror(what);
    exit(125);
}

static void send_all(int line, const char* bytes, size_t count) {
    while (count > 0) {
        const ssize_t written = write(line, bytes, count);
        if (written < 0 && errno == EINTR) continue;
        if (written <= 0) die("write to the serial line");
        bytes += written;
        count -= (size_t)written;
    }
}

static void send_frame(int line, char kind, const char* bytes, size_t count) {
    char head[32];
    send_all(line, head, (size_t)snprintf(head, sizeof head, "%c%zu\n", kind, count));
    send_all(line, bytes, count);
}

static int open_line(const char* device) {
    const int line = open(device, O_RDWR | O_NOCTTY | O_CLOEXEC);
    struct termios raw;
    if (line < 0 || tcgetattr(line, &raw) != 0) die(device);
    cfmakeraw(&raw);
    raw.c_cflag |= CLOCAL;
    cfsetspeed(&raw, B115200);
    if (tcsetattr(line, TCSANOW, &raw) != 0) die(device);
    return line;
}

static int child_ended(pid_t child, int* status) {
    if (*status >= 0) return 1;
    int raw;
    if (waitpid(child, &raw, WNOHANG) != child) return 0;
    *status = WIFEXITED(raw) ? WEXITSTATUS(raw) : 128 + WTERMSIG(raw);
    return 1;
}

int main(int argc, char** argv) {
    if (argc < 3) return 125;
    const int line = open_line(argv[1]);
    int out[2], err[2];
    if (pipe2(out, O_CLOEXEC) != 0 || pipe2(err, O_CLOEXEC) != 0) die("pipe");
    send_frame(line, 'u', "", 0);
    const pid_t child = fork();
    if (child < 0) die("fork");
    if (child == 0) {
        setsid();
        dup2(open("/dev/null", O_RDONLY), 0);
        dup2(out[1], 1);
        dup2(err[1], 2);
        execvp(argv[2], argv + 2);
        die(argv[2]);
    }
    close(out[1]);
    close(err[1]);
    struct pollfd pipes[2] = {{out[0], POLLIN, 0}, {err[0], POLLIN, 0}};
    int status = -1, waited_ms = 0;
    while (pipes[0].fd >= 0 || pipes[1].fd >= 0) {
        const int ended = child_ended(child, &status), ready = poll(pipes, 2, 100);
        for (int i = 0; i < 2; i++) {
            if (!(pipes[i].revents & (POLLIN | POLLHUP | POLLERR))) continue;
            char bytes[4096];
            const ssize_t count = read(pipes[i].fd, bytes, sizeof bytes);
            if (count > 0)
                send_frame(line, i == 0 ? 'o' : 'e', bytes, (size_t)count);
            else
                pipes[i].fd = -1; // poll() passes over it
        }
        if (ended && ready == 0 && (waited_ms += 100) >= kPatienceMs) break;
    }
    while (!child_ended(child, &status)) usleep(10000);
    char text[16];
    send_frame(line, 'x', text, (size_t)snprintf(text, sizeof text, "%d", status));
    tcdrain(line);
    return 0;
}
