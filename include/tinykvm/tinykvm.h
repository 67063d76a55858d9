/* tinykvm: programs in tiny KVM machines, whose functions the host calls. C interface; tinykvm.hpp is for C++.
 *
 * A program boots once and says that it is ready (guest.h), or reaches a symbol that counts as that. What it is then is
 * an image. Machines are clones of an image, and share its memory until they write to it. A call of a function of the
 * program runs on a machine. Its arguments are copied into the machine, and its results out of it, within bounds. A
 * reset restores a machine to its image, bit by bit, in microseconds.
 *
 * The program is not trusted. It reaches files and the network only as far as it is allowed (tinykvm_program_set), and
 * whatever it does in a call is an outcome of that call.
 *
 * Errors. Functions that can fail take a tinykvm_error, which may be null. They return a null pointer, 0 for an address,
 * or -1, and fill it in. `message` is one line that says what is wrong, where, and how to mend it.
 *
 * Threads. A program object belongs to one thread at a time. Images can be used by any number of threads at once. A
 * machine belongs to one thread at a time, except for tinykvm_stop(). The process gets one thread of the library, which
 * interrupts long calls by the signal SIGRTMIN + 3: leave that one alone.
 *
 * Lifetimes. An image may be freed while machines of it exist: they keep what they need.
 *
 * Versions are semantic (semver.org): while the major version is 0, the minor one changes with the interface. */
#ifndef TINYKVM_H
#define TINYKVM_H
#include <stddef.h>
#include <stdint.h>

#define TINYKVM_VERSION_MAJOR 0
#define TINYKVM_VERSION_MINOR 1
#define TINYKVM_VERSION_PATCH 0

#if defined(__GNUC__)
#define TINYKVM_API __attribute__((visibility("default")))
#else
#define TINYKVM_API
#endif

/* NOLINTBEGIN(modernize-use-using): C */
#ifdef __cplusplus
extern "C" {
#endif

/* "0.1.0": of the library that is loaded. */
TINYKVM_API const char *tinykvm_version(void);

enum tinykvm_error_code {
    TINYKVM_ERROR_FAILURE = 1,       /* the host could not do it: see the message */
    TINYKVM_ERROR_USAGE = 2,         /* an argument, or the order of calls */
    TINYKVM_ERROR_NOT_FOUND = 3,     /* a program, a file or a symbol */
    TINYKVM_ERROR_NOT_PERMITTED = 4, /* by the host, to this process */
    TINYKVM_ERROR_NOT_READY = 6,     /* the program ended, or was not ready in time */
    TINYKVM_ERROR_BAD_SNAPSHOT = 7,  /* damaged, of another version, or for another CPU */
    TINYKVM_ERROR_NO_KVM = 8         /* /dev/kvm is missing or must not be opened */
};

#define TINYKVM_MESSAGE_BYTES 1024
typedef struct tinykvm_error {
    int code;                            /* tinykvm_error_code */
    char message[TINYKVM_MESSAGE_BYTES]; /* UTF-8, without control characters */
} tinykvm_error;

/* ---- programs: what to boot, and what it may do --------------------------------------------------------------- */

typedef struct tinykvm_program tinykvm_program;

/* `path` is a path, or a name that is looked up in PATH. Nothing is opened yet. */
TINYKVM_API tinykvm_program *tinykvm_program_new(const char *path, tinykvm_error *error);
TINYKVM_API void tinykvm_program_free(tinykvm_program *program);
/* Adds an argument. The first one becomes argv[1]. */
TINYKVM_API int tinykvm_program_argument(tinykvm_program *program, const char *text, tinykvm_error *error);

/* Sets an option, or adds to it if it is a list. Times are in seconds, sizes in MiB; yes and no are "true" and "false".
 *
 *   ready-at            a symbol of the program: its first instruction counts as tinykvm_ready()
 *   env                 NAME=VALUE (list). The program sees no other variables
 *   cwd                 its working folder; default: that of this process
 *   allow-read          file or folder (list)          allow-write         likewise; writing implies reading
 *   volume              HOST:GUEST[:rwx] (list)        allow-connect       HOST:PORT (list)
 *   allow-all           everything
 *   max-boot-time       60: until it is ready          max-main-memory     8192: all of a machine's memory
 *   max-address-space   122880                         max-request-memory  128: what a machine adds to its image
 *   max-request-time    8: of a call, by the clock     max-request-cpu     0: of a call, by the CPU; 0: no limit
 *   max-keep-memory     128: kept between resets       max-open-files      1024
 *   no-executable-heap  false                          cpu                 x86-64-v2, -v3, -v4; default: this CPU
 *   code-as-is          false: do not patch code       verbose             false: more lines for the log
 *
 * Options that kvmserver has too mean the same there (docs/COMMANDS.md). */
TINYKVM_API int tinykvm_program_set(tinykvm_program *program, const char *option, const char *value,
                                    tinykvm_error *error);

/* Gets what the program prints: `stream` is 1 for its stdout, 2 for its stderr. The bytes are not lines. Without it they
 * go to those of this process. Called on the threads that boot and call, at once if those run at once. */
typedef void (*tinykvm_output)(void *user, int stream, const char *bytes, size_t count);
TINYKVM_API void tinykvm_program_output(tinykvm_program *program, tinykvm_output output, void *user);
/* Gets a line for each remarkable thing that is no error, such as a refused access. Without it nobody is told. Called as
 * the one above. */
typedef void (*tinykvm_log)(void *user, const char *line);
TINYKVM_API void tinykvm_program_log(tinykvm_program *program, tinykvm_log log, void *user);

/* ---- images --------------------------------------------------------------------------------------------------- */

typedef struct tinykvm_image tinykvm_image;
typedef struct tinykvm_machine tinykvm_machine;

/* Boots the program until it is ready and all its other threads wait. The program object may be freed afterwards. */
TINYKVM_API tinykvm_image *tinykvm_boot(const tinykvm_program *program, tinykvm_error *error);
/* Restores an image from a file of tinykvm_save(). `options` may be null; otherwise its permissions replace those of the
 * file if it has any, its limits those that it sets, and its path and arguments are not used. */
TINYKVM_API tinykvm_image *tinykvm_restore(const char *file, const tinykvm_program *options, tinykvm_error *error);
/* Saves an image as a snapshot (docs: src/snapshot/FORMAT.md). `rehearse` may be null; otherwise it gets a machine on
 * which it calls what calls will typically be, and returns 0; otherwise nothing is saved. Those calls change nothing
 * outside, and the pages that they use are restored first. A file of this name is replaced once the new one is
 * complete. */
TINYKVM_API int tinykvm_save(const tinykvm_image *image, const char *file,
                             int (*rehearse)(void *user, tinykvm_machine *machine), void *user, tinykvm_error *error);
TINYKVM_API void tinykvm_image_free(tinykvm_image *image);

/* The address of a function or variable, of the program itself or else of one of its libraries. Looks in their files, so
 * these must be the ones that the image was made from: other files are not used. 0: see the error. */
TINYKVM_API uint64_t tinykvm_symbol(const tinykvm_image *image, const char *name, tinykvm_error *error);

/* ---- machines ------------------------------------------------------------------------------------------------- */

enum tinykvm_machine_flags {
    TINYKVM_EPHEMERAL = 1 /* is reset after every call, whatever its outcome: read nothing of its memory then */
};
TINYKVM_API tinykvm_machine *tinykvm_machine_new(const tinykvm_image *image, unsigned flags, tinykvm_error *error);
TINYKVM_API void tinykvm_machine_free(tinykvm_machine *machine);

/* A function that the program calls by tinykvm_call_host(number, ...). It may use tinykvm_read() and tinykvm_write(),
 * but not call, reset or free the machine. What it returns is the result of that call. */
typedef int64_t (*tinykvm_host_function)(void *user, tinykvm_machine *machine, const uint64_t arguments[5]);
/* `function` null removes it. */
TINYKVM_API int tinykvm_host_call(tinykvm_machine *machine, unsigned number, tinykvm_host_function function, void *user,
                                  tinykvm_error *error);

/* At most 6 of the arguments that are not reals, and 8 that are. */
enum tinykvm_argument_kind {
    TINYKVM_INTEGER = 0, /* `integer`: integers of any width (sign-extended) and addresses in the machine */
    TINYKVM_DOUBLE = 1,  /* `real` */
    TINYKVM_FLOAT = 2,   /* `real`, as a float */
    TINYKVM_STRING = 3,  /* `data` is NUL-terminated. The function gets the address of a copy */
    TINYKVM_IN = 4,      /* `data`, `bytes`: likewise */
    TINYKVM_OUT = 5,     /* the function gets zeroed memory, which is copied to `data` when it has returned */
    TINYKVM_IN_OUT = 6   /* both */
};
typedef struct tinykvm_argument {
    int kind; /* tinykvm_argument_kind */
    uint64_t integer;
    double real;
    void *data; /* aligned to 16 bytes in the machine */
    size_t bytes;
} tinykvm_argument;

enum tinykvm_outcome_kind {
    TINYKVM_RETURNED = 0,
    TINYKVM_KILLED = 1,    /* by a signal: `number`, at `address` */
    TINYKVM_EXITED = 2,    /* the program ended with the status `number` */
    TINYKVM_TIMED_OUT = 3, /* over max-request-time or max-request-cpu */
    TINYKVM_STUCK = 4,     /* all threads wait for what will never come */
    TINYKVM_NO_MEMORY = 5, /* over max-request-memory or max-main-memory */
    TINYKVM_BROKEN = 6,    /* the program did to its machine what no program does */
    TINYKVM_STOPPED = 7    /* tinykvm_stop() */
};
typedef struct tinykvm_outcome {
    int kind;         /* tinykvm_outcome_kind */
    int number;       /* signal or exit status */
    uint64_t address; /* TINYKVM_KILLED: that the program could not access, if the signal has one */
    uint64_t integer; /* what the function returned, if that is an integer or an address: its type says how many bits */
    double real;      /* if it is a double */
    float real_float; /* if it is a float */
    uint64_t exits;   /* how often the machine was left */
    char message[TINYKVM_MESSAGE_BYTES]; /* unless it returned: one line */
} tinykvm_outcome;

/* Calls the function at `function` (tinykvm_symbol). 0: see the outcome. -1: there was no call, or the host failed.
 * `seconds` limits the time by the clock, instead of max-request-time; 0: that limit.
 * After an outcome other than TINYKVM_RETURNED a machine that is not ephemeral must be reset before its next call. */
TINYKVM_API int tinykvm_call(tinykvm_machine *machine, uint64_t function, const tinykvm_argument *arguments,
                             size_t count, double seconds, tinykvm_outcome *outcome, tinykvm_error *error);
/* Ends the call that is under way, or else the next one before it begins. Any thread may call this. */
TINYKVM_API void tinykvm_stop(tinykvm_machine *machine);
/* Restores the machine to its image. Random values, the process number and the like are new in every restored machine. */
TINYKVM_API int tinykvm_reset(tinykvm_machine *machine, tinykvm_error *error);

/* Copy from or to the program's memory, with its own rights there. -1: not all of the range is mapped and accessible; part
 * of a write may have happened. */
TINYKVM_API int tinykvm_read(tinykvm_machine *machine, uint64_t from, void *to, size_t bytes, tinykvm_error *error);
TINYKVM_API int tinykvm_write(tinykvm_machine *machine, uint64_t to, const void *from, size_t bytes,
                              tinykvm_error *error);
/* Copies a string, with its NUL, to `to`, which has room for `room` bytes. Returns its length. -1: it is longer, or not
 * readable. */
TINYKVM_API int64_t tinykvm_read_string(tinykvm_machine *machine, uint64_t from, char *to, size_t room,
                                        tinykvm_error *error);

#ifdef __cplusplus
}
#endif
/* NOLINTEND(modernize-use-using) */
#endif
