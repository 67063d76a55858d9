// System V shared memory, semaphores and message queues.
#include "fault.h"

#include <pthread.h>
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/sem.h>
#include <sys/mman.h>
#include <sys/shm.h>

enum { PAGE = 4096 };
#define RAW ((char *)-1)

static void shared_memory(void) {
    section("shared memory");
    int id = MUST(shmget(IPC_PRIVATE, 3 * PAGE + 5, 0600));
    char *p = shmat(id, NULL, 0), *q = shmat(id, NULL, SHM_RDONLY);
    CHECK(p != RAW && q != RAW && p != q);
    CHECK(p[0] == 0 && p[4 * PAGE - 1] == 0);
    p[PAGE] = 'a';
    CHECK(q[PAGE] == 'a');
    try_write("through the read-only one", q);
    struct shmid_ds info;
    CALL(shmctl(id, IPC_STAT, &info));
    CHECK(info.shm_segsz == 3 * PAGE + 5 && info.shm_nattch == 2 && (info.shm_perm.mode & 0777) == 0600);
    CHECK(info.shm_cpid == getpid() && info.shm_lpid == getpid());
    CALL(shmdt(q));
    CALL(shmdt(q));
    CALL(shmdt(p + PAGE));
    try_read("detached", q);
    CHECK(shmctl(id, IPC_STAT, &info) == 0 && info.shm_nattch == 1);
    CHECK(shmat(id, p, 0) == RAW && errno == EINVAL);
    CHECK(shmat(id, p + 1, 0) == RAW && errno == EINVAL);
    CHECK(shmat(id, NULL, SHM_REMAP) == RAW && errno == EINVAL);
    CHECK(shmat(id, p + 1, SHM_RND | SHM_REMAP) == p && p[PAGE] == 'a');
    CALL(shmctl(id, IPC_RMID, NULL));
    p[0] = 'b'; // until it is detached
    CHECK(shmctl(id, IPC_STAT, &info) == 0 && (info.shm_perm.mode & SHM_DEST) != 0);
    CALL(shmctl(9999999, IPC_RMID, NULL));
    CALL(shmctl(id, 77, NULL));
    CALL(shmctl(id, IPC_STAT, (void *)8));
    CHECK(shmat(9999999, NULL, 0) == RAW && errno == EINVAL);
    CALL(shmget(IPC_PRIVATE, 0, 0600));
    CALL(shmget(0x4b564d31, PAGE, 0600));
    id = MUST(shmget(0x4b564d31, PAGE, IPC_CREAT | IPC_EXCL | 0600));
    CHECK(shmget(0x4b564d31, PAGE, 0600) == id && shmget(0x4b564d31, 0, 0) == id);
    CALL(shmget(0x4b564d31, PAGE, IPC_CREAT | IPC_EXCL | 0600));
    CALL(shmget(0x4b564d31, 2 * PAGE, 0600));
    CALL(shmctl(id, IPC_RMID, NULL));
    CALL(shmctl(id, IPC_STAT, &info));
    CALL(shmget(0x4b564d31, PAGE, 0600));
}

static long attached(int id) {
    struct shmid_ds info;
    return shmctl(id, IPC_STAT, &info) == 0 ? (long)info.shm_nattch : -1;
}

static void unmapped_segments(void) {
    section("segments that munmap, mmap and mremap take away");
    int id = MUST(shmget(IPC_PRIVATE, 4 * PAGE, 0600));
    char *p = shmat(id, NULL, 0);
    CALL(munmap(p, 4 * PAGE));
    CALL(attached(id));
    CALL(shmdt(p));
    p = shmat(id, NULL, 0);
    CHECK(mmap(p, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == p);
    p[0] = 'm';
    CALL(attached(id));
    CALL(shmdt(p));
    CHECK(p[0] == 'm');
    CALL(munmap(p, 4 * PAGE));
    p = shmat(id, NULL, 0);
    p[0] = 'a', p[3 * PAGE] = 'd';
    CALL(munmap(p + PAGE, PAGE));
    CALL(attached(id));
    CHECK(p[0] == 'a' && p[3 * PAGE] == 'd');
    CALL(munmap(p, PAGE));
    CALL(attached(id));
    CALL(shmdt(p));
    CALL(attached(id));
    try_read("all of it", p + 3 * PAGE);
    p = shmat(id, NULL, 0);
    char *room = mmap(NULL, 8 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char *q = mremap(p, 4 * PAGE, 4 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, room);
    CHECK(q == room && q[3 * PAGE] == 'd');
    CALL(attached(id));
    CALL(shmdt(p));
    CALL(shmctl(id, IPC_RMID, NULL));
    CALL(attached(id));
    CALL(shmdt(q));
    CALL(attached(id));
    p = shmat(id = MUST(shmget(IPC_PRIVATE, PAGE, 0600)), NULL, 0);
    CALL(shmctl(id, IPC_RMID, NULL));
    CALL(munmap(p, PAGE));
    CALL(attached(id)); // gone with its last mapping
}

static int set;
static int operate(int number, int change, int flags) {
    struct sembuf op = {(unsigned short)number, (short)change, (short)flags};
    return semop(set, &op, 1);
}
static void *wait_for_one(void *result) {
    *(int *)result = operate(1, -1, 0);
    return NULL;
}
static void *wait_for_zero(void *result) {
    *(int *)result = operate(0, 0, 0) ? errno : 0;
    return NULL;
}
static void until_waiting(int what, int number) {
    while (semctl(set, number, what) != 1) sched_yield();
}

static void semaphores(void) {
    section("semaphores");
    set = MUST(semget(IPC_PRIVATE, 3, 0600));
    CALL(semctl(set, 0, GETVAL));
    CALL(semctl(set, 0, SETVAL, 2));
    CALL(operate(0, -1, 0));
    CALL(operate(0, -2, IPC_NOWAIT));
    CALL(operate(0, 0, IPC_NOWAIT));
    CALL(operate(3, 1, 0));
    CALL(operate(0, 32767, 0));
    CALL(semctl(set, 0, GETVAL));
    CHECK(semctl(set, 0, GETPID) == getpid());
    struct sembuf all_or_none[] = {{1, 5, 0}, {2, -1, IPC_NOWAIT}};
    CALL(semop(set, all_or_none, 2));
    CALL(semctl(set, 1, GETVAL));
    CALL(semop(set, all_or_none, 0));
    CALL(semop(set, all_or_none, 100000));
    CALL(semop(set, (void *)8, 1));
    CALL(semop(9999999, all_or_none, 1));
    struct timespec short_time = {0, 3000000}, bad_time = {0, -1};
    struct sembuf take = {1, -1, 0};
    CALL(semtimedop(set, &take, 1, &short_time));
    CALL(semtimedop(set, &take, 1, &bad_time));
    CALL(semctl(set, 0, SETVAL, -1));
    CALL(semctl(set, 0, SETVAL, 40000));
    CALL(semctl(set, 9, SETVAL, 1));
    unsigned short values[3] = {4, 0, 6}, got[3] = {0};
    CALL(semctl(set, 0, SETALL, values));
    CALL(semctl(set, 0, GETALL, got));
    CHECK(memcmp(values, got, sizeof values) == 0);
    struct semid_ds info;
    CALL(semctl(set, 0, IPC_STAT, &info));
    CHECK(info.sem_nsems == 3 && info.sem_otime != 0);

    int taken = 77, zero = 77;
    pthread_t taker, waiter;
    MUST(-pthread_create(&taker, NULL, wait_for_one, &taken));
    until_waiting(GETNCNT, 1);
    CALL(operate(1, 1, 0));
    pthread_join(taker, NULL);
    CHECK(taken == 0 && semctl(set, 1, GETVAL) == 0);
    MUST(-pthread_create(&waiter, NULL, wait_for_zero, &zero));
    until_waiting(GETZCNT, 0);
    CALL(operate(0, -4, 0));
    pthread_join(waiter, NULL);
    CHECK(zero == 0);
    CALL(operate(0, 1, SEM_UNDO));
    zero = 77;
    MUST(-pthread_create(&waiter, NULL, wait_for_zero, &zero));
    until_waiting(GETZCNT, 0);
    CALL(semctl(set, 0, IPC_RMID));
    pthread_join(waiter, NULL);
    CHECK(zero == EIDRM);
    CALL(semctl(set, 0, GETVAL));
    CALL(semget(IPC_PRIVATE, 0, 0600));
    CALL(semget(IPC_PRIVATE, -1, 0600));
    CALL(semget(0x4b564d32, 1, 0600));
    int id = MUST(semget(0x4b564d32, 2, IPC_CREAT | 0600));
    CHECK(semget(0x4b564d32, 0, 0) == id);
    CALL(semget(0x4b564d32, 3, 0));
    CALL(semctl(id, 0, IPC_RMID));
}

static int queue;
static void *receive_late(void *got) {
    struct { long type; char text[20]; } m;
    *(long *)got = msgrcv(queue, &m, sizeof m.text, 7, 0) == 3 ? m.type : -errno;
    return NULL;
}

static void messages(void) {
    section("messages");
    queue = MUST(msgget(IPC_PRIVATE, 0600));
    struct { long type; char text[20]; } m = {2, "two"}, got = {0};
    CALL(msgsnd(queue, &m, 4, 0));
    m.type = 1, strcpy(m.text, "one");
    CALL(msgsnd(queue, &m, 4, 0));
    m.type = 3, strcpy(m.text, "three");
    CALL(msgsnd(queue, &m, 6, 0));
    struct msqid_ds info;
    CALL(msgctl(queue, IPC_STAT, &info));
    CHECK(info.msg_qnum == 3 && info.msg_qbytes == 16384 && info.msg_lspid == getpid());
    CALL(msgrcv(queue, &got, 20, 9, IPC_NOWAIT));
    CALL(msgrcv(queue, &got, 3, 3, 0));
    CALL(msgrcv(queue, &got, 3, 3, MSG_NOERROR));
    CHECK(got.type == 3 && memcmp(got.text, "thr", 3) == 0);
    CALL(msgrcv(queue, &got, 20, -5, 0));
    CHECK(got.type == 1 && strcmp(got.text, "one") == 0);
    CALL(msgrcv(queue, &got, 20, 1, MSG_EXCEPT));
    CHECK(got.type == 2 && strcmp(got.text, "two") == 0);
    CALL(msgrcv(queue, &got, 20, 0, IPC_NOWAIT));
    m.type = 0;
    CALL(msgsnd(queue, &m, 4, 0));
    m.type = 1;
    CALL(msgsnd(queue, &m, 8193, 0));
    CALL(msgsnd(queue, (void *)8, 1, 0));
    CALL(msgsnd(9999999, &m, 1, 0));
    CALL(msgrcv(9999999, &m, 1, 0, 0));
    static struct { long type; char text[8192]; } big = {1, ""};
    CALL(msgsnd(queue, &big, 8192, 0));
    CALL(msgsnd(queue, &big, 8192, 0));
    CALL(msgsnd(queue, &big, 1, IPC_NOWAIT));
    CALL(msgrcv(queue, &big, 8192, 0, 0));
    CALL(msgrcv(queue, &big, 8192, 0, 0));
    long type = 0;
    pthread_t receiver;
    MUST(-pthread_create(&receiver, NULL, receive_late, &type));
    m.type = 7;
    CALL(msgsnd(queue, &m, 3, 0));
    pthread_join(receiver, NULL);
    CHECK(type == 7);
    type = 0;
    MUST(-pthread_create(&receiver, NULL, receive_late, &type));
    sched_yield();
    CALL(msgctl(queue, IPC_RMID, NULL));
    pthread_join(receiver, NULL);
    CHECK(type == -EIDRM || type == -EINVAL); // it may not have waited yet
    CALL(msgget(0x4b564d33, 0600));
    int id = MUST(msgget(0x4b564d33, IPC_CREAT | 0600));
    CALL(msgget(0x4b564d33, IPC_CREAT | IPC_EXCL));
    CALL(msgctl(id, IPC_RMID, NULL));
}

int main(void) {
    fault_catch();
    shared_memory();
    unmapped_segments();
    semaphores();
    messages();
}
